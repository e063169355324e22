// Which weights are dropped. Included once for every SIMD target.
#if defined(QKV_KERNELS_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_DROPOUT_INL_H_
#undef QKV_KERNELS_DROPOUT_INL_H_
#else
#define QKV_KERNELS_DROPOUT_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/kernel_table.h"
#include "kernels/philox.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {

/// factors[j] = 0 for a dropped key of the row, else scale, for all kSegmentKeys keys.
template <class T>
HWY_NOINLINE void dropout_factors(const Dropout<T>& dropout, int row, T* HWY_RESTRICT factors) {
  constexpr int kGroups = kSegmentKeys / 4;
  std::uint32_t words[4][kGroups];
  for (int i = 0; i < kGroups; ++i) {
    words[0][i] = dropout.first_group + static_cast<std::uint32_t>(i);
    words[1][i] = dropout.queries[row];
    words[2][i] = dropout.heads[row];
    words[3][i] = dropout.offset;
  }
  philox(words, dropout.key0, dropout.key1);
  for (int i = 0; i < kGroups; ++i) {
    for (int j = 0; j < 4; ++j) {
      factors[4 * i + j] = words[j][i] >= dropout.threshold ? dropout.scale : T{0};
    }
  }
}

}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // QKV_KERNELS_DROPOUT_INL_H_
