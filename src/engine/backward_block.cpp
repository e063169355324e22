#include "engine/backward_block.h"

#include <algorithm>

#include "base/broadcast.h"

namespace qkv::engine {
namespace {

using kernels::kGradientKeys;
using kernels::kScoreStride;

/// Rows that see none of the keys.
template <class T>
void clear_rows(Index first, Index count, bool finite, const GradientMemory<T>& own) noexcept {
  for (Index row = first; row < first + count; ++row) {
    std::fill_n(own.weights + row * kScoreStride, kGradientKeys, T{0});
    std::fill_n(own.score_gradient + row * kScoreStride, kGradientKeys, T{0});
    if (!finite) std::fill_n(own.visible + row * kGradientKeys, kGradientKeys, std::uint8_t{0});
  }
}

/// visible[row][key] of a block of rows.
template <class T>
void mark_visible(const kernels::Block<T>& block, Index first, const GradientMemory<T>& own,
                  const BlockRows<T>& scratch) noexcept {
  for (Index i = 0; i < block.rows; ++i) {
    const auto slot = static_cast<std::size_t>(i);
    std::uint8_t* target = own.visible + (first + i) * kGradientKeys;
    std::fill_n(target, kGradientKeys, std::uint8_t{0});
    for (Index j = scratch.begin[slot]; j < scratch.end[slot]; ++j) {
      target[j] = scratch.flags[slot][j];
    }
  }
}

/// dbias += ds, summed over the axes that the bias broadcasts along.
template <class T>
void add_bias_gradient(const BackwardWork<T>& work, const TileRows& rows, Index first, Index count,
                       Index first_key, const GradientMemory<T>& own,
                       const BlockRows<T>& scratch) noexcept {
  const TensorView<T, 4>& bias = *work.gradients.bias;
  const RowOrder order = work.order();
  for (Index i = 0; i < count; ++i) {
    const auto slot = static_cast<std::size_t>(i);
    const Index h = order.head_of(rows.kv, rows.first + first + i);
    const Index t = order.query_of(rows.first + first + i);
    const T* from = own.bias_gradient + (first + i) * kScoreStride;
    if (work.sums_rows()) {
      // Summed within the chunk; it waits with the query's gradient for its turn.
      T sum = 0;
      for (Index j = scratch.begin[slot]; j < scratch.end[slot]; ++j) sum += from[j];
      own.gathered[first + i] += sum;
      continue;
    }
    T* target = &broadcast_at(bias, rows.kv.b, h, t, Index{0}) + first_key * bias.stride(3);
    for (Index j = scratch.begin[slot]; j < scratch.end[slot]; ++j) {
      target[j * bias.stride(3)] += from[j];
    }
  }
}

}  // namespace

template <class T>
void differentiate(const BackwardWork<T>& work, const QueryTile& tile, const KeyChunk& chunk,
                   Index block_number, const GradientMemory<T>& own,
                   BlockRows<T>& scratch) noexcept {
  const BackwardPlan& plan = work.plan;
  const RowOrder order = work.order();
  const Index first_key = chunk.first_key + block_number * kGradientKeys;
  const Index keys = std::min(kGradientKeys, chunk.keys - block_number * kGradientKeys);
  const TileRows& rows = tile.rows;
  const Index step = work.call.kernels.block_rows;
  kernels::GradientTile<T> gather;
  gather.row_begin = static_cast<std::int32_t>(rows.count);
  gather.key_begin = static_cast<std::int32_t>(kGradientKeys);
  bool all_visible = true;
  const bool finite = tile.finite && chunk.finite[static_cast<std::size_t>(block_number)];
  std::array<const T*, kernels::kMostBlockRows> upstream_rows{};
  for (Index first = 0; first < rows.count; first += step) {
    kernels::GradientBlock<T> part;
    part.block = block_of(work, rows, first, first_key, keys,
                          own.keys + block_number * plan.key_panels, own, scratch);
    const Index count = std::min(step, rows.count - first);
    if (part.block.rows == 0) {
      clear_rows(first, count, finite, own);
      all_visible = false;
      continue;
    }
    part.values = own.values + block_number * plan.value_panels;
    part.value_width = static_cast<std::int32_t>(work.shape().value_width);
    part.gradient = own.gradient_blocks + first * work.shape().value_width;
    part.log_sum_exp = own.log_sum_exp + first;
    part.delta = own.delta + first;
    if (work.upstream.weights) {
      for (Index i = 0; i < count; ++i) {
        const Index row = rows.first + first + i;
        upstream_rows[static_cast<std::size_t>(i)] =
            weights_gradient_row(work, rows.kv.b, order.head_of(rows.kv, row), order.query_of(row),
                                 first_key, keys, own.upstream + i * kGradientKeys);
      }
      part.weights_gradient = upstream_rows.data();
    }
    part.scale = static_cast<T>(work.call.plan.scale);
    part.slopes = own.slopes;
    part.score_gradient = own.score_gradient + first * kScoreStride;
    if (work.gradients.bias) part.bias_gradient = own.bias_gradient + first * kScoreStride;
    work.call.kernels.differentiate(part);
    if (work.gradients.bias) {
      add_bias_gradient(work, rows, first, count, first_key, own, scratch);
    }
    if (!finite) mark_visible(part.block, first, own, scratch);
    const kernels::Visibility& visibility = part.block.visibility;
    all_visible = all_visible && visibility.all && visibility.begin == 0 && visibility.end == keys;
    gather.row_begin = std::min(gather.row_begin, static_cast<std::int32_t>(first));
    gather.row_end = static_cast<std::int32_t>(first + count);
    gather.key_begin = std::min(gather.key_begin, visibility.begin);
    gather.key_end = std::max(gather.key_end, visibility.end);
  }
  if (gather.row_begin >= gather.row_end) return;
  gather.depth_columns = static_cast<std::int32_t>(plan.depth_columns);
  gather.value_columns = static_cast<std::int32_t>(plan.value_columns);
  gather.weights = own.weights;
  gather.score_gradient = own.score_gradient;
  gather.query_rows = own.query_rows;
  gather.gradient_rows = own.gradient_rows;
  gather.key_rows = own.key_rows + block_number * kGradientKeys * plan.depth_columns;
  gather.visible = finite || all_visible ? nullptr : own.visible;
  gather.query_gradient = own.query_gradient;
  gather.key_gradient = own.key_gradient + block_number * kGradientKeys * plan.depth_columns;
  gather.value_gradient = own.value_gradient + block_number * kGradientKeys * plan.value_columns;
  work.call.kernels.gather(gather);
}

template void differentiate(const BackwardWork<double>&, const QueryTile&, const KeyChunk&, Index,
                            const GradientMemory<double>&, BlockRows<double>&) noexcept;
template void differentiate(const BackwardWork<float>&, const QueryTile&, const KeyChunk&, Index,
                            const GradientMemory<float>&, BlockRows<float>&) noexcept;

}  // namespace qkv::engine
