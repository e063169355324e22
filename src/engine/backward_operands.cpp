#include "engine/backward_operands.h"

#include <algorithm>
#include <numbers>

namespace qkv::engine {
namespace {

using kernels::kGradientKeys;
using kernels::kGradientRows;

/// Rows of a tile as query blocks and as row panels; rows that are left out are 0. Returns whether all are finite.
template <class T>
bool pack_rows(const BackwardWork<T>& work, const TensorView<const T, 4>& source,
               const TileRows& rows, T scale, T* blocks, T* panels, T* gathered) noexcept {
  const RowOrder order = work.order();
  const Index width = source.shape(3);
  for (Index row = 0; row < rows.count; ++row) {
    const Index h = order.head_of(rows.kv, rows.first + row);
    const Index t = order.query_of(rows.first + row);
    T* target = gathered + row * width;
    if (work.unused(rows.kv.b, h, t) != 0) {
      std::fill_n(target, width, T{0});
      continue;
    }
    const T* from =
        source.data() + rows.kv.b * source.stride(0) + h * source.stride(1) + t * source.stride(2);
    if (source.stride(3) == 1) {
      std::copy_n(from, width, target);
    } else {
      for (Index d = 0; d < width; ++d) target[d] = from[d * source.stride(3)];
    }
  }
  const kernels::KernelTable<T>& table = work.call.kernels;
  for (Index first = 0; first < rows.count; first += table.block_rows) {
    table.pack_query({gathered + first * width, width, 1},
                     std::min(table.block_rows, rows.count - first), width, scale,
                     blocks + first * width);
  }
  return table.pack_rows({gathered, width, 1}, rows.count, width, kGradientRows, panels);
}

}  // namespace

template <class T>
void assign_tile(const BackwardWork<T>& work, const KvHead& kv, Index number,
                 QueryTile& tile) noexcept {
  const RowOrder order = work.order();
  const Index first = number * kGradientRows;
  tile.rows.assign(work.call.plan.mask, order, kv, first,
                   std::min(kGradientRows, work.rows() - first));
  for (Index row = 0; row < tile.rows.count; ++row) {
    if (work.unused(kv.b, order.head_of(kv, first + row), order.query_of(first + row)) != 0) {
      tile.rows.ranges[static_cast<std::size_t>(row)] = {0, 0};
      tile.rows.common = {0, 0};
    }
  }
}

template <class T>
void pack_tile(const BackwardWork<T>& work, QueryTile& tile,
               const GradientMemory<T>& own) noexcept {
  const RowOrder order = work.order();
  const TileRows& rows = tile.rows;
  const bool finite_queries = pack_rows(work, work.call.inputs.query, rows, work.call.query_scale(),
                                        own.query_blocks, own.query_rows, own.gathered);
  const bool finite_gradients = pack_rows(work, work.upstream.context, rows, T{1},
                                          own.gradient_blocks, own.gradient_rows, own.gathered);
  tile.finite = finite_queries && finite_gradients;
  const double unit = work.call.modified() ? 1 : std::numbers::log2e;
  for (Index row = 0; row < rows.count; ++row) {
    const Index h = order.head_of(rows.kv, rows.first + row);
    const Index t = order.query_of(rows.first + row);
    own.log_sum_exp[row] =
        static_cast<T>(static_cast<double>(work.results.log_sum_exp(rows.kv.b, h, t)) * unit);
    own.delta[row] = work.delta(rows.kv.b, h, t);
  }
}

template <class T>
void pack_chunk(const BackwardWork<T>& work, KeyChunk& chunk,
                const GradientMemory<T>& own) noexcept {
  const kernels::KernelTable<T>& table = work.call.kernels;
  const KvHead& kv = chunk.kv;
  for (Index block = 0; block * kGradientKeys < chunk.keys; ++block) {
    const Index first = chunk.first_key + block * kGradientKeys;
    const Index keys = std::min(kGradientKeys, chunk.keys - block * kGradientKeys);
    pack_block_keys(work, kv, first, keys, own.keys + block * work.plan.key_panels);
    chunk.finite[static_cast<std::size_t>(block)] = table.pack_rows(
        rows_from(work.call.inputs.key, kv.b, kv.head, first), keys, work.shape().key_width,
        kGradientKeys, own.key_rows + block * kGradientKeys * work.plan.depth_columns);
    table.pack_keys(rows_from(work.call.inputs.value, kv.b, kv.head, first), keys,
                    work.shape().value_width, own.values + block * work.plan.value_panels);
  }
}

template <class T>
void pack_block_keys(const BackwardWork<T>& work, const KvHead& kv, Index first_key, Index keys,
                     T* target) noexcept {
  work.call.kernels.pack_keys(rows_from(work.call.inputs.key, kv.b, kv.head, first_key), keys,
                              work.shape().key_width, target);
}

template <class T>
kernels::Block<T> block_of(const BackwardWork<T>& work, const TileRows& rows, Index first,
                           Index first_key, Index keys, const T* key_panels,
                           const GradientMemory<T>& own, BlockRows<T>& scratch) noexcept {
  auto block = described_block<T>(work.call, rows, first, first_key, keys, scratch);
  block.query = own.query_blocks + first * work.shape().key_width;
  block.keys = key_panels;
  block.scores = own.weights + first * kernels::kScoreStride;
  return block;
}

template <class T>
const T* weights_gradient_row(const BackwardWork<T>& work, Index b, Index h, Index t,
                              Index first_key, Index keys, T* storage) noexcept {
  const TensorView<const T, 4>& gradient = *work.upstream.weights;
  const T* data = gradient.data() + b * gradient.stride(0) + h * gradient.stride(1) +
                  t * gradient.stride(2) + first_key * gradient.stride(3);
  if (gradient.stride(3) == 1) return data;
  for (Index j = 0; j < keys; ++j) storage[j] = data[j * gradient.stride(3)];
  return storage;
}

template <class T>
using Pointer = T*;

#define QKV_INSTANTIATE(T)                                                                        \
  template void assign_tile(const BackwardWork<T>&, const KvHead&, Index, QueryTile&) noexcept;   \
  template void pack_tile(const BackwardWork<T>&, QueryTile&, const GradientMemory<T>&) noexcept; \
  template void pack_chunk(const BackwardWork<T>&, KeyChunk&, const GradientMemory<T>&) noexcept; \
  template void pack_block_keys(const BackwardWork<T>&, const KvHead&, Index, Index,              \
                                Pointer<T>) noexcept;                                             \
  template kernels::Block<T> block_of(const BackwardWork<T>&, const TileRows&, Index, Index,      \
                                      Index, const T*, const GradientMemory<T>&,                  \
                                      BlockRows<T>&) noexcept;                                    \
  template const T* weights_gradient_row(const BackwardWork<T>&, Index, Index, Index, Index,      \
                                         Index, Pointer<T>) noexcept;
QKV_INSTANTIATE(double)
QKV_INSTANTIATE(float)
#undef QKV_INSTANTIATE

}  // namespace qkv::engine
