// float16 and bfloat16 to float32. Included once for every SIMD target.
#if defined(QKV_KERNELS_WIDEN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_WIDEN_INL_H_
#undef QKV_KERNELS_WIDEN_INL_H_
#else
#define QKV_KERNELS_WIDEN_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/product-inl.h"
#include "qkv/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Half is Highway's type for the bits of Stored.
template <class Half, class Stored>
HWY_INLINE void widen_halves(const Stored* HWY_RESTRICT source, std::ptrdiff_t count,
                             float* HWY_RESTRICT target) {
  static_assert(sizeof(Half) == sizeof(Stored));
  const Full<float> d;
  const hn::Rebind<std::uint16_t, Full<float>> bits;
  const hn::Rebind<Half, Full<float>> halves;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  const auto* from = reinterpret_cast<const std::uint16_t*>(source);
  std::ptrdiff_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto loaded = hn::BitCast(halves, hn::LoadU(bits, from + i));
    hn::StoreU(hn::PromoteTo(d, loaded), d, target + i);
  }
  for (; i < count; ++i) target[i] = static_cast<float>(static_cast<double>(source[i]));
}

inline HWY_NOINLINE void widen_float16(const Float16* source, std::ptrdiff_t count,
                                       float* target) noexcept {
  widen_halves<hwy::float16_t>(source, count, target);
}

inline HWY_NOINLINE void widen_bfloat16(const BFloat16* source, std::ptrdiff_t count,
                                        float* target) noexcept {
  widen_halves<hwy::bfloat16_t>(source, count, target);
}

}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // QKV_KERNELS_WIDEN_INL_H_
