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

template <class Stored>
HWY_NOINLINE void widen_row(const Stored* source, std::ptrdiff_t count, float* target) noexcept {
  const Full<float> d;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  std::ptrdiff_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(load_panel(d, source + i), d, target + i);
  for (; i < count; ++i) target[i] = static_cast<float>(static_cast<double>(source[i]));
}

}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // QKV_KERNELS_WIDEN_INL_H_
