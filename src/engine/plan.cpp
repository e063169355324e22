#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

#include "engine/division.h"
#include "engine/forward_plan.h"
#include "engine/setting.h"
#include "engine/tile_rows.h"

namespace qkv::engine {
namespace {

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

/// Calls visit(row of blocks, segment, pairs, visible pairs) for every block of a kv head.
template <class T, class Visit>
void for_each_block(const Call<T>& call, const KvHead& kv, const Visit& visit) {
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
    for (Index segment = 0; segment * kSegmentKeys < shape.keys; ++segment) {
      const Index first_key = segment * kSegmentKeys;
      const Index keys = std::min(kSegmentKeys, shape.keys - first_key);
      const bool in_range = first_key < tile.keys.end && first_key + keys > tile.keys.begin;
      const bool seen = in_range && describe(call, tile, 0, here, first_key, keys, *block);
      visit(first / block_rows, segment, here * keys, seen ? visible_pairs(*block, here) : 0);
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
BlockCounts count_blocks(const Call<T>& call, const KvHead& kv) {
  BlockCounts counts;
  for_each_block(call, kv, [&](Index /*row*/, Index /*segment*/, Index pairs, Index visible) {
    const BlockKind kind = kind_of(pairs, visible);
    counts.hidden += kind == BlockKind::Hidden ? 1 : 0;
    counts.partial += kind == BlockKind::Partial ? 1 : 0;
    counts.full += kind == BlockKind::Full ? 1 : 0;
    counts.pairs += pairs;
    counts.visible_pairs += visible;
  });
  return counts;
}

void check_index(std::string_view argument, std::string_view size, Index extent, Index index) {
  if (index >= 0 && index < extent) return;
  throw std::invalid_argument(
      fmt::format("engine::map_blocks: {}: expected an index below {}={}, got {}", argument, size,
                  extent, index));
}

}  // namespace

double BlockCounts::visible_fraction() const noexcept {
  return pairs == 0 ? 0 : static_cast<double>(visible_pairs) / static_cast<double>(pairs);
}

template <class T>
Plan plan(const AttentionInputs<T>& inputs, const Options& options, bool with_weights) {
  constexpr std::string_view kOperation = "engine::plan";
  const Setting setting = setting_of(kOperation, options);
  const AttentionPlan checked = validate_inputs(kOperation, inputs);
  const Call<T> call{inputs, checked, kernels::table_of<Arithmetic<T>>(*setting.target),
                     setting.dropout};
  const AttentionShape& shape = checked.shape;

  Plan result;
  result.target = setting.target->name;
  result.rows = shape.queries * shape.group();
  result.block_rows = call.kernels.block_rows;
  result.segment_keys = kSegmentKeys;
  if (shape.batch == 0 || result.rows == 0) return result;  // forward has nothing to do, either

  const ForwardPlan layout =
      plan_forward(call, {.with_weights = with_weights, .cached = false}, setting);
  result.threads = layout.threads;
  result.division = layout.by_keys ? Division::Keys : Division::Tiles;
  result.tile_rows = layout.tile_rows;
  result.tiles = divide_up(result.rows, layout.tile_rows);
  result.key_parts = layout.by_keys ? layout.runs : 1;
  result.workspace_bytes = layout.bytes;
  for (Index b = 0; b < shape.batch; ++b) {
    for (Index head = 0; head < shape.kv_heads; ++head) {
      result.heads.push_back({b, head, count_blocks(call, {b, head})});
      add(result.total, result.heads.back().blocks);
    }
  }
  return result;
}

template <class T>
BlockMap map_blocks(const AttentionInputs<T>& inputs, Index sample, Index kv_head,
                    const Options& options) {
  constexpr std::string_view kOperation = "engine::map_blocks";
  const Setting setting = setting_of(kOperation, options);
  const AttentionPlan checked = validate_inputs(kOperation, inputs);
  const Call<T> call{inputs, checked, kernels::table_of<Arithmetic<T>>(*setting.target),
                     setting.dropout};
  const AttentionShape& shape = checked.shape;
  check_index("sample", "B", shape.batch, sample);
  check_index("kv head", "Hkv", shape.kv_heads, kv_head);

  BlockMap map;
  map.rows = divide_up(shape.queries * shape.group(), call.kernels.block_rows);
  map.segments = divide_up(shape.keys, kSegmentKeys);
  for_each_block(call, {sample, kv_head},
                 [&](Index /*row*/, Index /*segment*/, Index pairs, Index visible) {
                   map.kinds.push_back(kind_of(pairs, visible));
                 });
  return map;
}

#define QKV_INSTANTIATE(T)                                             \
  template Plan plan(const AttentionInputs<T>&, const Options&, bool); \
  template BlockMap map_blocks(const AttentionInputs<T>&, Index, Index, const Options&);
QKV_INSTANTIATE(double)
QKV_INSTANTIATE(float)
QKV_INSTANTIATE(Float16)
QKV_INSTANTIATE(BFloat16)
#undef QKV_INSTANTIATE

}  // namespace qkv::engine
