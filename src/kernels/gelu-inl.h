// The Gaussian error linear unit in float32. Included once for every SIMD target.
#if defined(QKV_KERNELS_GELU_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_GELU_INL_H_
#undef QKV_KERNELS_GELU_INL_H_
#else
#define QKV_KERNELS_GELU_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>

#include "kernels/exp2-inl.h"
#include "kernels/product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Φ(−|x|) = exp(−x²/2) · t·p(t) with t = 1/(1 + 0.3·|x|/√2), the form of Hastings, "Approximations for Digital Computers"
// (1955). p is near-minimax for the relative error, 2·10⁻⁸, for |x| <= 14; beyond, the exponential is 0.
struct GeluConstants {
  static constexpr float kStretch = 0.212132034356F;  // 0.3/√2
  static constexpr float kHalfLog2E = 0.721347520444F;
  static constexpr float kDensityAtZero = 0.398942280401F;  // 1/√(2π)
  static constexpr float kPolynomial[] = {0.0845940033998F, 0.0853575999449F,  0.0741696824303F,
                                          0.107462644780F,  -0.0473244487581F, 0.273858670912F,
                                          -0.256137849297F, 0.242781015126F,   -0.0647613283268F};
};

/// x becomes x·Φ(x), slope Φ(x) + x·φ(x).
template <class D, class V = hn::Vec<D>>
HWY_INLINE void gelu_of(D d, V& x, V& slope) {
  using Constants = GeluConstants;
  const V one = hn::Set(d, 1.0F);
  const V t = hn::Div(one, hn::MulAdd(hn::Abs(x), hn::Set(d, Constants::kStretch), one));
  constexpr int kTerms = sizeof(Constants::kPolynomial) / sizeof(float);
  V p = hn::Set(d, Constants::kPolynomial[kTerms - 1]);
  for (int i = kTerms - 2; i >= 0; --i) {
    p = hn::MulAdd(p, t, hn::Set(d, Constants::kPolynomial[i]));
  }
  const V bell = exp2_of(d, hn::Mul(hn::Mul(x, x), hn::Set(d, -Constants::kHalfLog2E)));
  const V tail = hn::Mul(bell, hn::Mul(p, t));
  const V below = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail));
  slope = hn::MulAdd(x, hn::Mul(bell, hn::Set(d, Constants::kDensityAtZero)), below);
  x = hn::Mul(x, below);
}

/// One vector; `slopes` may be null.
template <class D>
HWY_INLINE void gelu_lanes(D d, float* values, float* slopes) {
  auto x = hn::LoadU(d, values);
  auto slope = hn::Undefined(d);
  gelu_of(d, x, slope);
  hn::StoreU(x, d, values);
  if (slopes != nullptr) hn::StoreU(slope, d, slopes);
}

/// Every element alike, wherever it stands. `slopes` may be null.
template <class T>
HWY_NOINLINE void gelu_row(T* values, T* slopes, std::ptrdiff_t count) noexcept {
  const Full<T> d;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  std::ptrdiff_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    gelu_lanes(d, values + i, slopes == nullptr ? nullptr : slopes + i);
  }
  if (i == count) return;
  HWY_ALIGN T last[hn::MaxLanes(d)] = {};
  HWY_ALIGN T last_slopes[hn::MaxLanes(d)];
  for (std::ptrdiff_t j = i; j < count; ++j) last[j - i] = values[j];
  gelu_lanes(d, last, last_slopes);
  for (std::ptrdiff_t j = i; j < count; ++j) {
    values[j] = last[j - i];
    if (slopes != nullptr) slopes[j] = last_slopes[j - i];
  }
}

}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // QKV_KERNELS_GELU_INL_H_
