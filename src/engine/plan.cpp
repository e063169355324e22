#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "engine/backward_plan.h"
#include "engine/cached_call.h"
#include "engine/division.h"
#include "engine/forward_plan.h"
#include "engine/setting.h"
#include "engine/tile_rows.h"

namespace qkv::engine {
namespace {

using kernels::kGradientKeys;
using kernels::kGradientRows;
using kernels::kSegmentKeys;

/// Pairs of a described block that see each other, as the kernel would have them.
template <class A>
Index visible_pairs(const BlockRows<A>& block, Index rows) {
  const kernels::Visibility& visibility = block.visibility;
  if (visibility.all) return rows * (visibility.end - visibility.begin);
  Index count = 0;
  for (Index row = 0; row < rows; ++row) {
    const std::int32_t begin = visibility.row_begin[row];
    const std::int32_t end = visibility.row_end[row];
    count += visibility.flags == nullptr
                 ? end - begin
                 : std::count(visibility.flags[row] + begin, visibility.flags[row] + end, 1);
  }
  return count;
}

/// Calls visit(pairs, visible pairs) for every block of a kv head, row of blocks by row.
template <class T, class Visit>
void for_each_block(const Call<T>& call, const KvHead& kv, Index block_keys, const Visit& visit) {
  using A = Arithmetic<T>;
  const AttentionShape& shape = call.shape();
  const RowOrder order{shape.group()};
  const Index rows = shape.queries * shape.group();
  const Index block_rows = call.kernels.block_rows;
  const auto block = std::make_unique<BlockRows<A>>();
  TileRows tile;
  for (Index first = 0; first < rows; first += block_rows) {
    const Index here = std::min(block_rows, rows - first);
    tile.assign(call.plan.mask, order, kv, first, here);
    for (Index first_key = 0; first_key < shape.keys; first_key += block_keys) {
      const Index keys = std::min(block_keys, shape.keys - first_key);
      const bool in_range = first_key < tile.keys.end && first_key + keys > tile.keys.begin;
      const bool seen = in_range && describe(call, tile, 0, here, first_key, keys, *block);
      visit(here * keys, seen ? visible_pairs(*block, here) : 0);
    }
  }
}

BlockKind kind_of(Index pairs, Index visible) {
  if (visible == 0) return BlockKind::Hidden;
  return visible == pairs ? BlockKind::Full : BlockKind::Partial;
}

void add(BlockCounts& counts, const BlockCounts& more) {
  counts.hidden += more.hidden;
  counts.partial += more.partial;
  counts.full += more.full;
  counts.pairs += more.pairs;
  counts.visible_pairs += more.visible_pairs;
}

template <class T>
BlockCounts count_blocks(const Call<T>& call, const KvHead& kv, Index block_keys) {
  BlockCounts counts;
  for_each_block(call, kv, block_keys, [&](Index pairs, Index visible) {
    const BlockKind kind = kind_of(pairs, visible);
    counts.hidden += kind == BlockKind::Hidden ? 1 : 0;
    counts.partial += kind == BlockKind::Partial ? 1 : 0;
    counts.full += kind == BlockKind::Full ? 1 : 0;
    counts.pairs += pairs;
    counts.visible_pairs += visible;
  });
  return counts;
}

/// What the plans of all calls have in common.
template <class T>
Plan plan_blocks(const Call<T>& call, const Setting& setting, Index block_keys) {
  const AttentionShape& shape = call.shape();
  Plan plan;
  plan.target = setting.target->name;
  plan.dropout = setting.dropout;
  plan.rows = shape.queries * shape.group();
  plan.block_rows = call.kernels.block_rows;
  plan.block_keys = block_keys;
  if (plan.rows == 0) return plan;  // the call has nothing to do, either
  for (Index b = 0; b < shape.batch; ++b) {
    for (Index head = 0; head < shape.kv_heads; ++head) {
      plan.heads.push_back({b, head, count_blocks(call, {b, head}, block_keys)});
      add(plan.total, plan.heads.back().blocks);
    }
  }
  return plan;
}

template <class T>
Plan plan_forward_blocks(const Call<T>& call, const Setting& setting, const ForwardNeeds& needs) {
  Plan plan = plan_blocks(call, setting, kSegmentKeys);
  if (plan.heads.empty()) return plan;
  const ForwardPlan layout = plan_forward(call, needs, setting);
  plan.threads = layout.threads;
  plan.division = layout.by_keys ? Division::Keys : Division::Tiles;
  plan.tile_rows = layout.tile_rows;
  plan.tiles = divide_up(plan.rows, layout.tile_rows);
  plan.key_parts = layout.by_keys ? layout.runs : 1;
  plan.workspace_bytes = layout.bytes;
  return plan;
}

void check_index(std::string_view operation, std::string_view argument, std::string_view size,
                 Index extent, Index index) {
  if (index >= 0 && index < extent) return;
  throw std::invalid_argument(fmt::format("{}: {}: expected an index below {}={}, got {}",
                                          operation, argument, size, extent, index));
}

template <class T>
BlockMap map_head(std::string_view operation, const Call<T>& call, Index block_keys,
                  const KvHead& kv) {
  const AttentionShape& shape = call.shape();
  check_index(operation, "sample", "B", shape.batch, kv.b);
  check_index(operation, "kv head", "Hkv", shape.kv_heads, kv.head);
  BlockMap map;
  map.rows = divide_up(shape.queries * shape.group(), call.kernels.block_rows);
  map.segments = divide_up(shape.keys, block_keys);
  for_each_block(call, kv, block_keys,
                 [&](Index pairs, Index visible) { map.kinds.push_back(kind_of(pairs, visible)); });
  return map;
}

/// A checked call with the memory that it refers to.
template <class T>
struct CheckedCall {
  CheckedCall(std::string_view operation, const AttentionInputs<T>& inputs, const Options& options)
      : setting(setting_of(operation, options)),
        plan(validate_inputs(operation, inputs)),
        call{inputs, plan, kernels::table_of<Arithmetic<T>>(*setting.target), setting.dropout} {}
  CheckedCall(const CheckedCall&) = delete;
  CheckedCall& operator=(const CheckedCall&) = delete;
  ~CheckedCall() = default;

  Setting setting;
  AttentionPlan plan;
  Call<T> call;
};

template <class T>
Call<T> call_of(const AttentionInputs<T>& inputs, const CachedCall& cached) {
  return {inputs, cached.plan, kernels::table_of<Arithmetic<T>>(*cached.setting.target),
          cached.setting.dropout};
}

}  // namespace

double BlockCounts::visible_fraction() const noexcept {
  return pairs == 0 ? 0 : static_cast<double>(visible_pairs) / static_cast<double>(pairs);
}

template <class T>
Plan plan(const AttentionInputs<T>& inputs, const Options& options, bool with_weights) {
  const CheckedCall<T> checked("engine::plan", inputs, options);
  return plan_forward_blocks(checked.call, checked.setting,
                             {.with_weights = with_weights, .cached = false});
}

template <class T>
Plan plan(const KvCache<T>& cache, const AttentionInputs<T>& inputs, const Options& options,
          bool with_weights) {
  const CachedCall cached = validate_cached("engine::plan(cache)", cache, inputs, options);
  return plan_forward_blocks(call_of(inputs, cached), cached.setting,
                             {.with_weights = with_weights, .cached = true});
}

template <class T>
Plan plan_backward(const AttentionInputs<T>& inputs, const Options& options) {
  const CheckedCall<T> checked("engine::plan_backward", inputs, options);
  Plan plan = plan_blocks(checked.call, checked.setting, kGradientKeys);
  plan.division = Division::Chunks;
  if (plan.heads.empty()) return plan;
  const BackwardPlan layout = plan_backward(checked.call, checked.setting.threads);
  plan.threads = layout.threads;
  plan.tile_rows = kGradientRows;
  plan.tiles = layout.tiles;
  plan.key_parts = layout.chunks;
  plan.whole_heads = layout.whole_heads;
  plan.workspace_bytes = layout.bytes;
  return plan;
}

template <class T>
BlockMap map_blocks(const AttentionInputs<T>& inputs, Index sample, Index kv_head,
                    const Options& options) {
  constexpr std::string_view kOperation = "engine::map_blocks";
  const CheckedCall<T> checked(kOperation, inputs, options);
  return map_head(kOperation, checked.call, kSegmentKeys, {sample, kv_head});
}

template <class T>
BlockMap map_blocks(const KvCache<T>& cache, const AttentionInputs<T>& inputs, Index sequence,
                    Index kv_head, const Options& options) {
  constexpr std::string_view kOperation = "engine::map_blocks(cache)";
  const CachedCall cached = validate_cached(kOperation, cache, inputs, options);
  return map_head(kOperation, call_of(inputs, cached), kSegmentKeys, {sequence, kv_head});
}

template <class T>
BlockMap map_backward_blocks(const AttentionInputs<T>& inputs, Index sample, Index kv_head,
                             const Options& options) {
  constexpr std::string_view kOperation = "engine::map_backward_blocks";
  const CheckedCall<T> checked(kOperation, inputs, options);
  return map_head(kOperation, checked.call, kGradientKeys, {sample, kv_head});
}

#define QKV_INSTANTIATE(T)                                                                 \
  template Plan plan(const AttentionInputs<T>&, const Options&, bool);                     \
  template Plan plan(const KvCache<T>&, const AttentionInputs<T>&, const Options&, bool);  \
  template BlockMap map_blocks(const AttentionInputs<T>&, Index, Index, const Options&);   \
  template BlockMap map_blocks(const KvCache<T>&, const AttentionInputs<T>&, Index, Index, \
                               const Options&);
QKV_INSTANTIATE(double)
QKV_INSTANTIATE(float)
QKV_INSTANTIATE(Float16)
QKV_INSTANTIATE(BFloat16)
#undef QKV_INSTANTIATE

#define QKV_INSTANTIATE(T)                                                \
  template Plan plan_backward(const AttentionInputs<T>&, const Options&); \
  template BlockMap map_backward_blocks(const AttentionInputs<T>&, Index, Index, const Options&);
QKV_INSTANTIATE(double)
QKV_INSTANTIATE(float)
#undef QKV_INSTANTIATE

}  // namespace qkv::engine
