#include "engine/backward_delta.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/broadcast.h"

namespace qkv::engine {

using kernels::kGradientKeys;
using kernels::kScoreStride;

template <class T>
void prepare_query(const BackwardWork<T>& work, Index b, Index h, Index t) noexcept {
  const AttentionOutputGradients<T>& upstream = work.upstream;
  T& delta = work.delta(b, h, t);
  std::uint8_t& unused = work.unused(b, h, t);
  const T upstream_lse = upstream.log_sum_exp ? (*upstream.log_sum_exp)(b, h, t) : T{0};
  unused = 0;
  if (!sees_a_key(work.call, b, h, t)) {
    unused = 1;
    delta = -upstream_lse;
    return;
  }
  const Index width = work.shape().value_width;
  const T* gradient = &upstream.context(b, h, t, 0);
  const T* context = &work.results.context(b, h, t, 0);
  const Index gradient_step = upstream.context.stride(3);
  const Index context_step = work.results.context.stride(3);
  T sum = 0;
  int used_entries = 0;
#pragma omp simd reduction(+ : sum, used_entries)
  for (Index d = 0; d < width; ++d) {
    const T g = gradient[d * gradient_step];
    used_entries += g != 0 ? 1 : 0;
    sum += g * context[d * context_step];
  }
  bool used = used_entries > 0;
  if (work.queries == Queries::WithGradient && !used) {
    used = upstream_lse != 0;
    for (Index s = 0; upstream.weights && !used && s < work.shape().keys; ++s) {
      used = (*upstream.weights)(b, h, t, s) != 0;
    }
    if (!used) {
      unused = 1;
      delta = 0;
      return;
    }
  }
  delta = sum - upstream_lse;
}

template <class T>
void add_weights_to_delta(const BackwardWork<T>& work, const KvHead& kv, Index tile_number,
                          const GradientMemory<T>& own, BlockRows<T>& scratch) noexcept {
  QueryTile tile;
  assign_tile(work, kv, tile_number, tile);
  pack_tile(work, tile, own);
  const TileRows& rows = tile.rows;
  const RowOrder order = work.order();
  const Index step = work.call.kernels.block_rows;
  std::array<T, kernels::kMostBlockRows> ones{};
  ones.fill(1);
  for (Index first_key = 0; first_key < work.shape().keys; first_key += kGradientKeys) {
    const Index keys = std::min(kGradientKeys, work.shape().keys - first_key);
    if (rows.keys.begin >= first_key + keys || rows.keys.end <= first_key) continue;
    pack_block_keys(work, kv, first_key, keys, own.keys);
    for (Index first = 0; first < rows.count; first += step) {
      const kernels::Block<T> block =
          block_of<T>(work, rows, first, first_key, keys, own.keys, own, scratch);
      if (block.rows == 0) continue;
      work.call.kernels.weigh(block, own.log_sum_exp + first, ones.data());
      for (Index i = 0; i < block.rows; ++i) {
        const auto slot = static_cast<std::size_t>(i);
        const Index h = order.head_of(kv, rows.first + first + i);
        const Index t = order.query_of(rows.first + first + i);
        const T* upstream = weights_gradient_row(work, kv.b, h, t, first_key, keys, own.upstream);
        const T* weights = block.scores + i * kScoreStride;
        T sum = 0;
        for (Index j = scratch.begin[slot]; j < scratch.end[slot]; ++j) {
          if (scratch.flags[slot][j] != 0) sum += weights[j] * upstream[j];
        }
        work.delta(kv.b, h, t) += sum;
      }
    }
  }
}

template <class T>
void write_sink_gradient(const BackwardWork<T>& work, Index h) noexcept {
  const AttentionShape& shape = work.shape();
  const auto sink = static_cast<double>((*work.call.inputs.sink)(h));
  double sum = 0;
  for (Index b = 0; b < shape.batch; ++b) {
    for (Index t = 0; t < shape.queries; ++t) {
      const auto lse = static_cast<double>(work.results.log_sum_exp(b, h, t));
      if (lse == -std::numeric_limits<double>::infinity()) continue;  // the sink's too
      sum -= std::exp(sink - lse) * static_cast<double>(work.delta(b, h, t));
    }
  }
  (*work.gradients.sink)(h) = static_cast<T>(sum);
}

template <class T>
void add_row_sums(const BackwardWork<T>& work) noexcept {
  const AttentionShape& shape = work.shape();
  for (Index b = 0; b < shape.batch; ++b) {
    for (Index h = 0; h < shape.heads; ++h) {
      for (Index t = 0; t < shape.queries; ++t) {
        broadcast_at(*work.gradients.bias, b, h, t, Index{0}) += work.row_sum(b, h, t);
      }
    }
  }
}

#define QKV_INSTANTIATE(T)                                                              \
  template void prepare_query(const BackwardWork<T>&, Index, Index, Index) noexcept;    \
  template void add_weights_to_delta(const BackwardWork<T>&, const KvHead&, Index,      \
                                     const GradientMemory<T>&, BlockRows<T>&) noexcept; \
  template void write_sink_gradient(const BackwardWork<T>&, Index) noexcept;            \
  template void add_row_sums(const BackwardWork<T>&) noexcept;
QKV_INSTANTIATE(double)
QKV_INSTANTIATE(float)
#undef QKV_INSTANTIATE

}  // namespace qkv::engine
