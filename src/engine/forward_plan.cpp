#include "engine/forward_plan.h"

#include <algorithm>
#include <limits>

#include "engine/division.h"
#include "engine/tile_rows.h"
#include "engine/workspace.h"

namespace qkv::engine {
namespace {

using kernels::kSegmentKeys;

/// Up to this many rows a kv head, the keys are divided among threads instead of the rows.
constexpr Index kFewRows = kTileRows;
/// Up to this many rows a kv head, copying the values costs more than it brings.
constexpr Index kRowsWorthACopy = 768;
/// Parts of the work a thread, so that they end at about the same time.
constexpr Index kPartsAThread = 4;

/// The keys that the rules of position and length leave to any row.
KeyRange keys_of_all_rows(const BoundMask& mask) {
  KeyRange all{std::numeric_limits<Index>::max(), 0};
  for (Index b = 0; b < mask.shape().batch; ++b) {
    for (Index t = 0; t < mask.shape().queries; ++t) {
      const KeyRange range = mask.key_range(b, t);
      if (range.begin == range.end) continue;
      all.begin = std::min(all.begin, range.begin);
      all.end = std::max(all.end, range.end);
    }
  }
  return all.begin < all.end ? all : KeyRange{0, 0};
}

/// Whether the kernels can read the values where they lie: whole panels, and no row that leaves out one of the others', for
/// then a hidden value that is not finite must not be touched.
template <class T>
bool values_fit_in_place(const Call<T>& call) {
  const TensorView<const T, 4>& value = call.inputs.value;
  return std::is_same_v<T, Arithmetic<T>> && value.stride(3) == 1 && value.shape(3) > 0 &&
         value.shape(3) % call.kernels.panel_width == 0 && !call.inputs.bias &&
         !call.plan.mask.depends_on_query() && !call.plan.mask.has_pointwise_rules();
}

}  // namespace

template <class T>
ForwardPlan plan_forward(const Call<T>& call, const ForwardNeeds& needs, const Setting& setting) {
  using A = Arithmetic<T>;
  const AttentionShape& shape = call.shape();
  const Index n = call.kernels.panel_width;
  const Index block = call.kernels.block_rows;
  ForwardPlan plan;
  plan.target = setting.target;
  plan.kv_heads = shape.batch * shape.kv_heads;
  const KeyRange keys = keys_of_all_rows(call.plan.mask);
  plan.first_segment = keys.begin / kSegmentKeys;
  plan.segments = divide_up(keys.end, kSegmentKeys) - plan.first_segment;
  plan.columns = divide_up(std::max<Index>(shape.value_width, 1), n) * n;
  plan.segment_keys_elements = kSegmentKeys * shape.key_width;
  plan.segment_values_elements = kSegmentKeys * plan.columns;

  const Index rows = shape.queries * shape.group();
  plan.by_keys = rows <= kFewRows && !needs.with_weights;
  plan.values_in_place = !needs.cached && values_fit_in_place(call) && rows <= kRowsWorthACopy;
  const double work = static_cast<double>(plan.kv_heads) * static_cast<double>(rows) *
                      static_cast<double>(keys.end - keys.begin) *
                      static_cast<double>(shape.key_width + shape.value_width);
  const Index most = useful_threads(work, setting.threads);
  if (plan.by_keys) {
    plan.tile_rows = divide_up(rows, block) * block;
    const Index wanted = most == 1 ? 1 : divide_up(kPartsAThread * most, plan.kv_heads);
    plan.runs = std::clamp<Index>(wanted, 1, std::max<Index>(plan.segments, 1));
    plan.threads = static_cast<int>(std::min(most, plan.kv_heads * plan.runs));
  } else {
    // Large tiles read the panels less often, small ones share the work better.
    const Index enough = divide_up(plan.kv_heads * rows, 2 * kPartsAThread * most);
    plan.tile_rows = std::min(divide_up(rows, block) * block,
                              std::clamp(divide_up(enough, block) * block,
                                         kTileRows / 2 / block * block, kTileRows / block * block));
    plan.tiles = divide_up(rows, plan.tile_rows);
    plan.threads =
        static_cast<int>(std::min(most, plan.kv_heads * std::max(plan.tiles, plan.segments)));
    if (!needs.cached) {
      plan.slots = std::min<Index>(plan.kv_heads, plan.threads == 1 ? 1 : plan.threads + 1);
    }
  }

  Layout layout;
  plan.progress_at = layout.add<ForwardProgress>(product({plan.kv_heads}));
  if (!plan.by_keys) {
    plan.finite_at = layout.add<std::uint8_t>(product({plan.slots, plan.segments}));
    plan.panels_at = layout.add<A>(product(
        {plan.slots, plan.segments, plan.segment_keys_elements + plan.segment_values_elements}));
  } else if (plan.runs > 1) {
    plan.states_at =
        layout.add<A>(product({plan.kv_heads, plan.segments, plan.tile_rows, plan.columns + 2}));
  }
  Layout own;
  plan.query_at = own.add<A>(product({plan.tile_rows, shape.key_width}));
  plan.scores_at = own.add<A>(product({block, kernels::kScoreStride}));
  plan.max_at = own.add<A>(product({plan.tile_rows}));
  plan.sum_at = own.add<A>(product({plan.tile_rows}));
  plan.context_at = own.add<A>(product({plan.tile_rows, plan.columns}));
  const Index row_width = std::max({shape.key_width, shape.value_width, Index{1}});
  plan.row_at = own.add<A>(product({std::is_same_v<T, A> ? block : kSegmentKeys, row_width}));
  const bool widens = needs.cached && needs.with_weights && !std::is_same_v<T, A>;
  const bool packs = plan.by_keys && !needs.cached;
  if (widens || packs) plan.keys_at = own.add<A>(product({plan.segment_keys_elements}));
  if (packs) {
    plan.values_at = own.add<A>(product({plan.segment_values_elements}));
  }
  plan.thread_bytes = own.bytes();
  plan.threads_at =
      layout.add<std::byte>(product({plan.threads, static_cast<Index>(plan.thread_bytes)}));
  plan.bytes = layout.bytes();
  return plan;
}

template ForwardPlan plan_forward(const Call<double>&, const ForwardNeeds&, const Setting&);
template ForwardPlan plan_forward(const Call<float>&, const ForwardNeeds&, const Setting&);
template ForwardPlan plan_forward(const Call<Float16>&, const ForwardNeeds&, const Setting&);
template ForwardPlan plan_forward(const Call<BFloat16>&, const ForwardNeeds&, const Setting&);

}  // namespace qkv::engine
