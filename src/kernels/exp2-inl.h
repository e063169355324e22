// 2^x for the softmax. Included once for every SIMD target.
#if defined(QKV_KERNELS_EXP2_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_EXP2_INL_H_
#undef QKV_KERNELS_EXP2_INL_H_
#else
#define QKV_KERNELS_EXP2_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// 2^x = 2^n · 2^f, n = round(x), |f| <= 1/2. Adding a number of which the last place is worth 1 rounds to n and
// leaves n in the lowest bits, from where it moves into the exponent. The polynomials are near-minimax for the relative
// error on [−1/2, 1/2] with p(0) = 1, so that 2^0 = 1 exactly.
template <class T>
struct Exp2Constants;

template <>
struct Exp2Constants<float> {
  static constexpr float kRound = 12582912.0F;  // 1.5·2^23
  static constexpr int kMantissaBits = 23;
  static constexpr float kSmallest = -126.0F;
  static constexpr float kPolynomial[] = {1.0F,
                                          0.693146977582F,
                                          0.240222420742F,
                                          0.0555073376787F,
                                          0.00967151315164F,
                                          0.00132647197968F};
};

template <>
struct Exp2Constants<double> {
  static constexpr double kRound = 6755399441055744.0;  // 1.5·2^52
  static constexpr int kMantissaBits = 52;
  static constexpr double kSmallest = -1022.0;
  static constexpr double kPolynomial[] = {1.0,
                                           0.69314718055994532581,
                                           0.24022650695910131262,
                                           0.055504108664820083114,
                                           0.0096181291075941231386,
                                           0.0013333558146774607719,
                                           0.0001540353045710634442,
                                           0.000015252733493190625873,
                                           1.3215435285680030459e-6,
                                           1.0178199524235817553e-7,
                                           7.0737826142859364966e-9,
                                           4.4347812964571684572e-10};
};

/// 2^x for x <= 0 (as scores less their maximum are): 0 below the smallest normal number, exactly 1 at 0, NaN for NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp2_of(D d, V x) {
  using T = hn::TFromD<D>;
  using Constants = Exp2Constants<T>;
  const hn::RebindToSigned<D> di;
  const V shifted = hn::Add(x, hn::Set(d, Constants::kRound));
  const V fraction = hn::Sub(x, hn::Sub(shifted, hn::Set(d, Constants::kRound)));
  constexpr int kTerms = sizeof(Constants::kPolynomial) / sizeof(T);
  V power = hn::Set(d, Constants::kPolynomial[kTerms - 1]);
  for (int i = kTerms - 2; i >= 0; --i) {
    power = hn::MulAdd(power, fraction, hn::Set(d, Constants::kPolynomial[i]));
  }
  const auto exponent = hn::ShiftLeft<Constants::kMantissaBits>(hn::BitCast(di, shifted));
  const V result = hn::BitCast(d, hn::Add(hn::BitCast(di, power), exponent));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, Constants::kSmallest)), result);
}

}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // QKV_KERNELS_EXP2_INL_H_
