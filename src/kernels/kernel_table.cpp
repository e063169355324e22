#include "kernels/kernel_table.h"

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

#include "kernels/simd_targets.h"  // before Highway's own

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/kernel_table.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include <hwy/highway.h>
#include "kernels/backward-inl.h"
#include "kernels/forward-inl.h"
#include "kernels/gelu-inl.h"
#include "kernels/pack-inl.h"
#include "kernels/widen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {

template <class T>
KernelTable<T> make_table() {
  KernelTable<T> table;
  table.panel_width = static_cast<std::ptrdiff_t>(2 * hn::Lanes(Full<T>()));
  table.block_rows = kBlockRows;
  table.pack_rows = &pack_rows<T>;
  table.pack_keys = &pack_keys<T>;
  table.pack_query = &pack_query<T>;
  table.has_lowest = &has_lowest<T>;
  table.multiply = &multiply_block<T>;
  table.attend = &attend_segment<T, T>;
  if constexpr (std::is_same_v<T, float>) {
    table.attend_float16 = &attend_segment<T, Float16>;
    table.attend_bfloat16 = &attend_segment<T, BFloat16>;
  }
  table.merge = &merge_states<T>;
  table.finish = &finish<T>;
  table.weigh = &weigh<T>;
  table.differentiate = &differentiate<T>;
  table.gather = &gather<T>;
  return table;
}

Target describe_target() {
  return {hwy::TargetName(HWY_TARGET), make_table<float>(), make_table<double>(), &gelu_row<float>,
          &widen_row<Float16>,         &widen_row<BFloat16>};
}

}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkv::kernels {
namespace {

HWY_EXPORT(describe_target);

Target make_target(std::int64_t target) {
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  // The first entry of the dispatch table is Highway's own choice; with one target the table has no other.
  constexpr std::size_t kEntries = std::extent_v<decltype(HWY_DISPATCH_TABLE(describe_target))>;
  return HWY_DISPATCH_TABLE(describe_target)[kEntries == 1 ? 0 : chosen.GetIndex()]();
}

struct TargetList {
  TargetList() noexcept {
    std::int64_t left = hwy::SupportedTargets() & HWY_TARGETS;
    while (left != 0 && count < targets.size()) {
      const std::int64_t best = left & -left;  // the lowest bit is the best target
      targets[count++] = make_target(best);
      left &= left - 1;
    }
  }
  std::array<Target, 16> targets;
  std::size_t count = 0;
};

}  // namespace

std::span<const Target> targets() {
  static const TargetList list;
  return {list.targets.data(), list.count};
}

}  // namespace qkv::kernels
#endif  // HWY_ONCE
