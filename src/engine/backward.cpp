// The derivatives, tile by tile:
//
//   p = exp(s − lse)     dv = pᵀ·dcontext      dp = dcontext·vᵀ (+ dweights)
//   ds = p·(dp − delta)  dq = ds·k             dk = dsᵀ·q            delta = dcontext·context (+ Σ p·dweights) − dlse
//
// A thread takes a chunk of keys of a kv head and keeps the gradients of its keys and values to itself; every tile of
// rows goes past. The gradient of a tile's queries is summed within the chunk first and added by the chunks in turn.
#include <omp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <thread>

#include "base/broadcast.h"
#include "engine/backward_plan.h"
#include "engine/tile_rows.h"
#include "engine/workspace.h"
#include "kernels/kernel_table.h"

namespace qkv::engine {
namespace {

using kernels::kGradientKeys;
using kernels::kGradientRows;
using kernels::kScoreStride;

template <class T>
struct Arguments {
  const ForwardResults<T>& results;
  const AttentionOutputGradients<T>& upstream;
  const AttentionInputGradients<T>& gradients;
  Queries queries;
};

/// Memory of one thread; see BackwardPlan.
template <class T>
struct ThreadMemory {
  T* query_blocks;
  T* query_rows;
  T* gradient_blocks;
  T* gradient_rows;
  T* gathered;
  T* log_sum_exp;
  T* delta;
  T* weights;
  T* score_gradient;
  T* bias_gradient;
  T* slopes;
  T* upstream;
  std::uint8_t* visible;
  T* query_gradient;
  T* keys;
  T* key_rows;
  T* values;
  T* key_gradient;
  T* value_gradient;
};

template <class T>
class Backward {
 public:
  Backward(const Call<T>& call, const Arguments<T>& arguments, const BackwardPlan& plan,
           std::byte* memory)
      : call_(call),
        arguments_(arguments),
        plan_(plan),
        memory_(memory),
        order_{call.shape().group()},
        rows_(call.shape().queries * call.shape().group()) {
    const double scale = call.plan.scale;
    query_scale_ = static_cast<T>(call.modified() ? scale : scale * std::numbers::log2e);
    base_ = call.modified() ? std::numbers::log2e_v<T> : T{1};
  }

  void run() noexcept;

 private:
  /// A tile of rows packed for the products.
  struct Tile {
    TileRows rows;
    bool finite = true;
  };
  /// A chunk of keys.
  struct Chunk {
    KvHead kv;
    Index number = 0;
    Index first_key = 0;
    Index keys = 0;
    std::array<bool, kChunkBlocks> finite{};
  };

  template <class E>
  E* at(std::size_t offset) const noexcept {
    return reinterpret_cast<E*>(memory_ + offset);
  }
  ThreadMemory<T> memory_of(int thread) const noexcept;
  Index number_of(Index b, Index h, Index t) const noexcept {
    return (b * call_.shape().heads + h) * call_.shape().queries + t;
  }
  bool serial_heads() const noexcept;

  void prepare_query(Index b, Index h, Index t) const noexcept;
  void add_weights_to_delta(const KvHead& kv, Index tile_number, const ThreadMemory<T>& own,
                            BlockRows<T>& scratch) const noexcept;
  void run_chunks(const ThreadMemory<T>& own) noexcept;
  Chunk chunk_of(Index kv_number, Index number) const noexcept {
    Chunk chunk;
    chunk.kv = {kv_number / call_.shape().kv_heads, kv_number % call_.shape().kv_heads};
    chunk.number = number;
    chunk.first_key = number * kChunkKeys;
    chunk.keys = std::min(kChunkKeys, call_.shape().keys - chunk.first_key);
    return chunk;
  }
  void run_chunk(Chunk& chunk, const ThreadMemory<T>& own, BlockRows<T>& scratch) const noexcept;
  void pack_keys(Chunk& chunk, const ThreadMemory<T>& own) const noexcept;
  void pack_block_keys(const KvHead& kv, Index first_key, Index keys, T* target) const noexcept;
  void assign_tile(const KvHead& kv, Index number, Tile& tile) const noexcept;
  void pack_tile(Tile& tile, const ThreadMemory<T>& own) const noexcept;
  bool pack_rows(const TensorView<const T, 4>& source, const TileRows& rows, T scale, T* blocks,
                 T* panels, T* gathered) const noexcept;
  kernels::Block<T> block_of(const TileRows& rows, Index first, Index first_key, Index keys,
                             const T* key_panels, const ThreadMemory<T>& own,
                             BlockRows<T>& scratch) const noexcept;
  void differentiate(const Tile& tile, const Chunk& chunk, Index block_number,
                     const ThreadMemory<T>& own, BlockRows<T>& scratch) const noexcept;
  void add_bias_gradient(const TileRows& rows, Index first, Index count, Index first_key,
                         const ThreadMemory<T>& own, const BlockRows<T>& scratch) const noexcept;
  void mark_visible(const kernels::Block<T>& block, Index first, const ThreadMemory<T>& own,
                    const BlockRows<T>& scratch) const noexcept;
  void write_queries(const Tile& tile, bool first_chunk, bool seen,
                     const ThreadMemory<T>& own) const noexcept;
  void write_keys(const Chunk& chunk, const ThreadMemory<T>& own) const noexcept;
  const T* weights_gradient_row(Index b, Index h, Index t, Index first_key, Index keys,
                                T* storage) const noexcept;
  void reduce_row_sums() const noexcept;
  void sink_gradient(Index h) const noexcept;

  const Call<T>& call_;
  const Arguments<T>& arguments_;
  const BackwardPlan& plan_;
  std::byte* memory_;
  RowOrder order_;
  Index rows_;
  T query_scale_ = 1;
  T base_ = 1;
  std::atomic<Index> next_{0};
};

template <class T>
ThreadMemory<T> Backward<T>::memory_of(int thread) const noexcept {
  const std::size_t base = plan_.threads_at + static_cast<std::size_t>(thread) * plan_.thread_bytes;
  const auto own = [&](std::size_t offset) { return at<T>(base + offset); };
  return {own(plan_.query_blocks_at),
          own(plan_.query_rows_at),
          own(plan_.gradient_blocks_at),
          own(plan_.gradient_rows_at),
          own(plan_.gathered_at),
          own(plan_.lse_at),
          own(plan_.row_delta_at),
          own(plan_.weights_at),
          own(plan_.score_gradient_at),
          own(plan_.bias_gradient_at),
          own(plan_.slopes_at),
          own(plan_.upstream_at),
          at<std::uint8_t>(base + plan_.visible_at),
          own(plan_.query_gradient_at),
          own(plan_.keys_at),
          own(plan_.key_rows_at),
          own(plan_.values_at),
          own(plan_.key_gradient_at),
          own(plan_.value_gradient_at)};
}

/// Whether heads add to the same entries of the bias's gradient, so that they must do so in order.
template <class T>
bool Backward<T>::serial_heads() const noexcept {
  if (!arguments_.gradients.bias || call_.inputs.bias->shape(3) == 1) return false;
  const TensorView<T, 4>& bias = *arguments_.gradients.bias;
  return (bias.shape(0) == 1 && call_.shape().batch > 1) ||
         (bias.shape(1) == 1 && call_.shape().kv_heads > 1);
}

/// delta of one query but for the part of the weights' gradients; decides whether it takes part.
template <class T>
void Backward<T>::prepare_query(Index b, Index h, Index t) const noexcept {
  const AttentionOutputGradients<T>& upstream = arguments_.upstream;
  const auto number = number_of(b, h, t);
  T& delta = at<T>(plan_.delta_at)[number];
  std::uint8_t& unused = at<std::uint8_t>(plan_.unused_at)[number];
  const T upstream_lse = upstream.log_sum_exp ? (*upstream.log_sum_exp)(b, h, t) : T{0};
  unused = 0;
  if (!sees_a_key(call_, b, h, t)) {
    unused = 1;
    delta = -upstream_lse;
    return;
  }
  const Index width = call_.shape().value_width;
  const T* gradient = &upstream.context(b, h, t, 0);
  const T* context = &arguments_.results.context(b, h, t, 0);
  const Index gradient_step = upstream.context.stride(3);
  const Index context_step = arguments_.results.context.stride(3);
  T sum = 0;
  int used_entries = 0;
#pragma omp simd reduction(+ : sum, used_entries)
  for (Index d = 0; d < width; ++d) {
    const T g = gradient[d * gradient_step];
    used_entries += g != 0 ? 1 : 0;
    sum += g * context[d * context_step];
  }
  bool used = used_entries > 0;
  if (arguments_.queries == Queries::WithGradient && !used) {
    used = upstream_lse != 0;
    for (Index s = 0; upstream.weights && !used && s < call_.shape().keys; ++s) {
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

/// The weights' gradients of a row from first_key on: where they lie, or copied.
template <class T>
const T* Backward<T>::weights_gradient_row(Index b, Index h, Index t, Index first_key, Index keys,
                                           T* storage) const noexcept {
  const TensorView<const T, 4>& gradient = *arguments_.upstream.weights;
  const T* data = gradient.data() + b * gradient.stride(0) + h * gradient.stride(1) +
                  t * gradient.stride(2) + first_key * gradient.stride(3);
  if (gradient.stride(3) == 1) return data;
  for (Index j = 0; j < keys; ++j) storage[j] = data[j * gradient.stride(3)];
  return storage;
}

template <class T>
void Backward<T>::pack_block_keys(const KvHead& kv, Index first_key, Index keys,
                                  T* target) const noexcept {
  call_.kernels.pack_keys(rows_from(call_.inputs.key, kv.b, kv.head, first_key), keys,
                          call_.shape().key_width, target);
}

template <class T>
void Backward<T>::pack_keys(Chunk& chunk, const ThreadMemory<T>& own) const noexcept {
  for (Index block = 0; block * kGradientKeys < chunk.keys; ++block) {
    const Index first = chunk.first_key + block * kGradientKeys;
    const Index keys = std::min(kGradientKeys, chunk.keys - block * kGradientKeys);
    pack_block_keys(chunk.kv, first, keys, own.keys + block * plan_.key_panels);
    chunk.finite[static_cast<std::size_t>(block)] =
        call_.kernels.pack_rows(rows_from(call_.inputs.key, chunk.kv.b, chunk.kv.head, first), keys,
                                call_.shape().key_width, kGradientKeys,
                                own.key_rows + block * kGradientKeys * plan_.depth_columns);
    call_.kernels.pack_keys(rows_from(call_.inputs.value, chunk.kv.b, chunk.kv.head, first), keys,
                            call_.shape().value_width, own.values + block * plan_.value_panels);
  }
}

/// Rows of a tile as query blocks and as row panels; rows that are left out are 0. Returns whether all are finite.
template <class T>
bool Backward<T>::pack_rows(const TensorView<const T, 4>& source, const TileRows& rows, T scale,
                            T* blocks, T* panels, T* gathered) const noexcept {
  const Index width = source.shape(3);
  const std::uint8_t* unused = at<std::uint8_t>(plan_.unused_at);
  for (Index row = 0; row < rows.count; ++row) {
    const Index h = order_.head_of(rows.kv, rows.first + row);
    const Index t = order_.query_of(rows.first + row);
    T* target = gathered + row * width;
    if (unused[number_of(rows.kv.b, h, t)] != 0) {
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
  const kernels::Strided<T> dense{gathered, width, 1};
  const Index step = call_.kernels.block_rows;
  for (Index first = 0; first < rows.count; first += step) {
    call_.kernels.pack_query({gathered + first * width, width, 1},
                             std::min(step, rows.count - first), width, scale,
                             blocks + first * width);
  }
  return call_.kernels.pack_rows(dense, rows.count, width, kGradientRows, panels);
}

/// Which keys the tile's rows see; a row that is left out sees none.
template <class T>
void Backward<T>::assign_tile(const KvHead& kv, Index number, Tile& tile) const noexcept {
  const Index first = number * kGradientRows;
  tile.rows.assign(call_.plan.mask, order_, kv, first, std::min(kGradientRows, rows_ - first));
  const std::uint8_t* unused = at<std::uint8_t>(plan_.unused_at);
  for (Index row = 0; row < tile.rows.count; ++row) {
    if (unused[number_of(kv.b, order_.head_of(kv, first + row), order_.query_of(first + row))] !=
        0) {
      tile.rows.ranges[static_cast<std::size_t>(row)] = {0, 0};
      tile.rows.common = {0, 0};
    }
  }
}

template <class T>
void Backward<T>::pack_tile(Tile& tile, const ThreadMemory<T>& own) const noexcept {
  const TileRows& rows = tile.rows;
  const bool finite_queries = pack_rows(call_.inputs.query, rows, query_scale_, own.query_blocks,
                                        own.query_rows, own.gathered);
  const bool finite_gradients = pack_rows(arguments_.upstream.context, rows, T{1},
                                          own.gradient_blocks, own.gradient_rows, own.gathered);
  tile.finite = finite_queries && finite_gradients;
  const double unit = call_.modified() ? 1 : std::numbers::log2e;
  for (Index row = 0; row < rows.count; ++row) {
    const Index h = order_.head_of(rows.kv, rows.first + row);
    const Index t = order_.query_of(rows.first + row);
    own.log_sum_exp[row] =
        static_cast<T>(static_cast<double>(arguments_.results.log_sum_exp(rows.kv.b, h, t)) * unit);
    own.delta[row] = at<T>(plan_.delta_at)[number_of(rows.kv.b, h, t)];
  }
}

template <class T>
kernels::Block<T> Backward<T>::block_of(const TileRows& rows, Index first, Index first_key,
                                        Index keys, const T* key_panels, const ThreadMemory<T>& own,
                                        BlockRows<T>& scratch) const noexcept {
  kernels::Block<T> block;
  block.rows = static_cast<std::int32_t>(std::min(call_.kernels.block_rows, rows.count - first));
  block.depth = static_cast<std::int32_t>(call_.shape().key_width);
  block.query = own.query_blocks + first * call_.shape().key_width;
  block.keys = key_panels;
  block.base = base_;
  block.scores = own.weights + first * kScoreStride;
  if (!describe(call_, rows, first, block.rows, first_key, keys, scratch)) block.rows = 0;
  block.visibility = scratch.visibility;
  block.modifiers = scratch.modifiers;
  block.dropout = scratch.dropout;
  return block;
}

/// visible[row][key] of a block of rows.
template <class T>
void Backward<T>::mark_visible(const kernels::Block<T>& block, Index first,
                               const ThreadMemory<T>& own,
                               const BlockRows<T>& scratch) const noexcept {
  for (Index i = 0; i < block.rows; ++i) {
    const auto slot = static_cast<std::size_t>(i);
    std::uint8_t* target = own.visible + (first + i) * kGradientKeys;
    std::fill_n(target, kGradientKeys, std::uint8_t{0});
    for (Index j = scratch.begin[slot]; j < scratch.end[slot]; ++j) {
      target[j] = scratch.flags[slot][j];
    }
  }
}

/// One tile against one block of the chunk's keys.
template <class T>
void Backward<T>::differentiate(const Tile& tile, const Chunk& chunk, Index block_number,
                                const ThreadMemory<T>& own, BlockRows<T>& scratch) const noexcept {
  const Index first_key = chunk.first_key + block_number * kGradientKeys;
  const Index keys = std::min(kGradientKeys, chunk.keys - block_number * kGradientKeys);
  const TileRows& rows = tile.rows;
  const Index step = call_.kernels.block_rows;
  kernels::GradientTile<T> gather;
  gather.row_begin = static_cast<std::int32_t>(rows.count);
  gather.key_begin = static_cast<std::int32_t>(kGradientKeys);
  bool all_visible = true;
  const bool finite = tile.finite && chunk.finite[static_cast<std::size_t>(block_number)];
  std::array<const T*, kernels::kMostBlockRows> upstream_rows{};
  for (Index first = 0; first < rows.count; first += step) {
    kernels::GradientBlock<T> work;
    work.block = block_of(rows, first, first_key, keys, own.keys + block_number * plan_.key_panels,
                          own, scratch);
    const Index count = std::min(step, rows.count - first);
    if (work.block.rows == 0) {
      for (Index row = first; row < first + count; ++row) {
        std::fill_n(own.weights + row * kScoreStride, kGradientKeys, T{0});
        std::fill_n(own.score_gradient + row * kScoreStride, kGradientKeys, T{0});
        if (!finite) std::fill_n(own.visible + row * kGradientKeys, kGradientKeys, std::uint8_t{0});
      }
      all_visible = false;
      continue;
    }
    work.values = own.values + block_number * plan_.value_panels;
    work.value_width = static_cast<std::int32_t>(call_.shape().value_width);
    work.gradient = own.gradient_blocks + first * call_.shape().value_width;
    work.log_sum_exp = own.log_sum_exp + first;
    work.delta = own.delta + first;
    if (arguments_.upstream.weights) {
      for (Index i = 0; i < count; ++i) {
        const Index row = rows.first + first + i;
        upstream_rows[static_cast<std::size_t>(i)] =
            weights_gradient_row(rows.kv.b, order_.head_of(rows.kv, row), order_.query_of(row),
                                 first_key, keys, own.upstream + i * kGradientKeys);
      }
      work.weights_gradient = upstream_rows.data();
    }
    work.scale = static_cast<T>(call_.plan.scale);
    work.slopes = own.slopes;
    work.score_gradient = own.score_gradient + first * kScoreStride;
    if (arguments_.gradients.bias) work.bias_gradient = own.bias_gradient + first * kScoreStride;
    call_.kernels.differentiate(work);
    if (arguments_.gradients.bias) {
      add_bias_gradient(rows, first, count, first_key, own, scratch);
    }
    if (!finite) mark_visible(work.block, first, own, scratch);
    const kernels::Visibility& visibility = work.block.visibility;
    all_visible = all_visible && visibility.all && visibility.begin == 0 && visibility.end == keys;
    gather.row_begin = std::min(gather.row_begin, static_cast<std::int32_t>(first));
    gather.row_end = static_cast<std::int32_t>(first + count);
    gather.key_begin = std::min(gather.key_begin, visibility.begin);
    gather.key_end = std::max(gather.key_end, visibility.end);
  }
  if (gather.row_begin >= gather.row_end) return;
  gather.depth_columns = static_cast<std::int32_t>(plan_.depth_columns);
  gather.value_columns = static_cast<std::int32_t>(plan_.value_columns);
  gather.weights = own.weights;
  gather.score_gradient = own.score_gradient;
  gather.query_rows = own.query_rows;
  gather.gradient_rows = own.gradient_rows;
  gather.key_rows = own.key_rows + block_number * kGradientKeys * plan_.depth_columns;
  gather.visible = finite || all_visible ? nullptr : own.visible;
  gather.query_gradient = own.query_gradient;
  gather.key_gradient = own.key_gradient + block_number * kGradientKeys * plan_.depth_columns;
  gather.value_gradient = own.value_gradient + block_number * kGradientKeys * plan_.value_columns;
  call_.kernels.gather(gather);
}

/// dbias += ds, summed over the axes that the bias broadcasts along.
template <class T>
void Backward<T>::add_bias_gradient(const TileRows& rows, Index first, Index count, Index first_key,
                                    const ThreadMemory<T>& own,
                                    const BlockRows<T>& scratch) const noexcept {
  const TensorView<T, 4>& bias = *arguments_.gradients.bias;
  for (Index i = 0; i < count; ++i) {
    const auto slot = static_cast<std::size_t>(i);
    const Index h = order_.head_of(rows.kv, rows.first + first + i);
    const Index t = order_.query_of(rows.first + first + i);
    const T* from = own.bias_gradient + (first + i) * kScoreStride;
    if (bias.shape(3) == 1) {
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

/// In the chunk's turn: the first chunk writes, the others add. Adding 0 turns −0 into 0.
template <class T>
void Backward<T>::write_queries(const Tile& tile, bool first_chunk, bool seen,
                                const ThreadMemory<T>& own) const noexcept {
  if (!first_chunk && !seen) return;
  const TensorView<T, 4>& gradient = arguments_.gradients.query;
  const TileRows& rows = tile.rows;
  const Index width = call_.shape().key_width;
  const bool row_sums = arguments_.gradients.bias && call_.inputs.bias->shape(3) == 1;
  for (Index row = 0; row < rows.count; ++row) {
    const Index h = order_.head_of(rows.kv, rows.first + row);
    const Index t = order_.query_of(rows.first + row);
    T* target = gradient.data() + rows.kv.b * gradient.stride(0) + h * gradient.stride(1) +
                t * gradient.stride(2);
    const T* from = own.query_gradient + row * plan_.depth_columns;
    for (Index d = 0; d < width; ++d) {
      T& entry = target[d * gradient.stride(3)];
      entry = (first_chunk ? T{0} : entry) + (seen ? from[d] : T{0});
    }
    if (row_sums) {
      T& sum = at<T>(plan_.row_sums_at)[number_of(rows.kv.b, h, t)];
      sum = (first_chunk ? T{0} : sum) + (seen ? own.gathered[row] : T{0});
    }
  }
}

template <class T>
void Backward<T>::write_keys(const Chunk& chunk, const ThreadMemory<T>& own) const noexcept {
  const auto write = [&](const TensorView<T, 4>& target, const T* from, Index columns) {
    for (Index key = 0; key < chunk.keys; ++key) {
      T* row = target.data() + chunk.kv.b * target.stride(0) + chunk.kv.head * target.stride(1) +
               (chunk.first_key + key) * target.stride(2);
      for (Index d = 0; d < target.shape(3); ++d) {
        row[d * target.stride(3)] = from[key * columns + d] + T{0};
      }
    }
  };
  write(arguments_.gradients.key, own.key_gradient, plan_.depth_columns);
  write(arguments_.gradients.value, own.value_gradient, plan_.value_columns);
}

template <class T>
void Backward<T>::run_chunk(Chunk& chunk, const ThreadMemory<T>& own,
                            BlockRows<T>& scratch) const noexcept {
  pack_keys(chunk, own);
  const Index blocks = (chunk.keys + kGradientKeys - 1) / kGradientKeys;
  std::fill_n(own.key_gradient, blocks * kGradientKeys * plan_.depth_columns, T{0});
  std::fill_n(own.value_gradient, blocks * kGradientKeys * plan_.value_columns, T{0});
  const Index kv_number = chunk.kv.b * call_.shape().kv_heads + chunk.kv.head;
  std::atomic<Index>* turns = at<std::atomic<Index>>(plan_.turns_at) + kv_number * plan_.tiles;
  Tile tile;
  // The last rows first, as under a causal mask all chunks see those.
  for (Index number = plan_.tiles - 1; number >= 0; --number) {
    assign_tile(chunk.kv, number, tile);
    const bool seen =
        tile.rows.keys.begin < chunk.first_key + chunk.keys && tile.rows.keys.end > chunk.first_key;
    if (seen) {
      pack_tile(tile, own);
      std::fill_n(own.query_gradient, kGradientRows * plan_.depth_columns, T{0});
      std::fill_n(own.gathered, kGradientRows, T{0});
      for (Index block = 0; block < blocks; ++block) {
        const Index begin = chunk.first_key + block * kGradientKeys;
        if (tile.rows.keys.begin < begin + kGradientKeys && tile.rows.keys.end > begin) {
          differentiate(tile, chunk, block, own, scratch);
        }
      }
    }
    while (turns[number].load(std::memory_order_acquire) != chunk.number) {
      std::this_thread::yield();
    }
    write_queries(tile, chunk.number == 0, seen, own);
    turns[number].store(chunk.number + 1, std::memory_order_release);
  }
  write_keys(chunk, own);
}

/// Heads are handed out whole as long as there is one for each thread, for nobody waits then; the chunks of the others one
/// by one. Work is taken in order and waits only for work that comes before it.
template <class T>
void Backward<T>::run_chunks(const ThreadMemory<T>& own) noexcept {
  BlockRows<T> scratch;
  const bool serial = serial_heads();
  const Index whole = serial ? 0 : plan_.kv_heads - plan_.kv_heads % plan_.threads;
  for (;;) {
    const Index item = next_.fetch_add(1, std::memory_order_relaxed);
    if (item < whole) {
      for (Index number = 0; number < plan_.chunks; ++number) {
        Chunk chunk = chunk_of(item, number);
        run_chunk(chunk, own, scratch);
      }
      continue;
    }
    const Index kv_number = whole + (item - whole) / plan_.chunks;
    if (kv_number >= plan_.kv_heads) return;
    Chunk chunk = chunk_of(kv_number, (item - whole) % plan_.chunks);
    std::atomic<Index>* done = at<std::atomic<Index>>(plan_.done_at) + chunk.number;
    if (serial && kv_number > 0) {
      while (done[(kv_number - 1) * plan_.chunks].load(std::memory_order_acquire) == 0) {
        std::this_thread::yield();
      }
    }
    run_chunk(chunk, own, scratch);
    done[kv_number * plan_.chunks].store(1, std::memory_order_release);
  }
}

/// delta += Σ_j p·dweights, for a tile of rows.
template <class T>
void Backward<T>::add_weights_to_delta(const KvHead& kv, Index tile_number,
                                       const ThreadMemory<T>& own,
                                       BlockRows<T>& scratch) const noexcept {
  Tile tile;
  assign_tile(kv, tile_number, tile);
  pack_tile(tile, own);
  const TileRows& rows = tile.rows;
  const Index step = call_.kernels.block_rows;
  std::array<T, kernels::kMostBlockRows> ones{};
  ones.fill(1);
  for (Index first_key = 0; first_key < call_.shape().keys; first_key += kGradientKeys) {
    const Index keys = std::min(kGradientKeys, call_.shape().keys - first_key);
    if (rows.keys.begin >= first_key + keys || rows.keys.end <= first_key) continue;
    pack_block_keys(kv, first_key, keys, own.keys);
    for (Index first = 0; first < rows.count; first += step) {
      const kernels::Block<T> block =
          block_of(rows, first, first_key, keys, own.keys, own, scratch);
      if (block.rows == 0) continue;
      call_.kernels.weigh(block, own.log_sum_exp + first, ones.data());
      for (Index i = 0; i < block.rows; ++i) {
        const auto slot = static_cast<std::size_t>(i);
        const Index h = order_.head_of(kv, rows.first + first + i);
        const Index t = order_.query_of(rows.first + first + i);
        const T* upstream = weights_gradient_row(kv.b, h, t, first_key, keys, own.upstream);
        const T* weights = block.scores + i * kScoreStride;
        T sum = 0;
        for (Index j = scratch.begin[slot]; j < scratch.end[slot]; ++j) {
          if (scratch.flags[slot][j] != 0) sum += weights[j] * upstream[j];
        }
        at<T>(plan_.delta_at)[number_of(kv.b, h, t)] += sum;
      }
    }
  }
}

/// A bias that is the same for all keys: its gradient is the sum over the rows that it serves, in order.
template <class T>
void Backward<T>::reduce_row_sums() const noexcept {
  const AttentionShape& shape = call_.shape();
  const TensorView<T, 4>& bias = *arguments_.gradients.bias;
  for (Index b = 0; b < shape.batch; ++b) {
    for (Index h = 0; h < shape.heads; ++h) {
      for (Index t = 0; t < shape.queries; ++t) {
        broadcast_at(bias, b, h, t, Index{0}) += at<T>(plan_.row_sums_at)[number_of(b, h, t)];
      }
    }
  }
}

/// The sink's weight is exp(sink − lse), its value 0: dsink = −Σ weight·delta.
template <class T>
void Backward<T>::sink_gradient(Index h) const noexcept {
  const AttentionShape& shape = call_.shape();
  const auto sink = static_cast<double>((*call_.inputs.sink)(h));
  double sum = 0;
  for (Index b = 0; b < shape.batch; ++b) {
    for (Index t = 0; t < shape.queries; ++t) {
      const auto lse = static_cast<double>(arguments_.results.log_sum_exp(b, h, t));
      if (lse == -std::numeric_limits<double>::infinity()) continue;  // the sink's too
      sum -= std::exp(sink - lse) * static_cast<double>(at<T>(plan_.delta_at)[number_of(b, h, t)]);
    }
  }
  (*arguments_.gradients.sink)(h) = static_cast<T>(sum);
}

template <class T>
void Backward<T>::run() noexcept {
  const AttentionShape& shape = call_.shape();
  const auto start = [&](std::size_t offset, Index count) {
    for (Index i = 0; i < count; ++i)
      new (at<std::atomic<Index>>(offset) + i) std::atomic<Index>(0);
  };
  start(plan_.turns_at, plan_.kv_heads * plan_.tiles);
  start(plan_.done_at, plan_.kv_heads * plan_.chunks);
  if (arguments_.gradients.bias) {
    const TensorView<T, 4>& bias = *arguments_.gradients.bias;
    detail::for_each_offset(bias.shape(), bias.strides(),
                            [&](std::ptrdiff_t offset) { bias.data()[offset] = 0; });
  }
  const Index pairs = shape.batch * shape.heads;
#pragma omp parallel num_threads(plan_.threads) if (plan_.threads > 1)
  {
    const ThreadMemory<T> own = memory_of(omp_get_thread_num());
#pragma omp for schedule(static)
    for (Index row = 0; row < pairs * shape.queries; ++row) {
      prepare_query(row / shape.queries / shape.heads, row / shape.queries % shape.heads,
                    row % shape.queries);
    }
    if (arguments_.upstream.weights) {
      BlockRows<T> scratch;
#pragma omp for schedule(dynamic)
      for (Index item = 0; item < plan_.kv_heads * plan_.tiles; ++item) {
        const Index kv = item / plan_.tiles;
        add_weights_to_delta({kv / shape.kv_heads, kv % shape.kv_heads}, item % plan_.tiles, own,
                             scratch);
      }
    }
    run_chunks(own);
    if (arguments_.gradients.sink) {
#pragma omp for schedule(static)
      for (Index h = 0; h < shape.heads; ++h) sink_gradient(h);
    }
  }
  if (arguments_.gradients.bias && call_.inputs.bias->shape(3) == 1) reduce_row_sums();
}

}  // namespace

template <class T>
void backward(const AttentionInputs<T>& inputs, const ForwardResults<T>& results,
              const AttentionOutputGradients<T>& output_gradients,
              const AttentionInputGradients<T>& input_gradients, const Options& options,
              Queries queries) {
  constexpr std::string_view kOperation = "engine::backward";
  const Setting setting = setting_of(kOperation, options);
  const AttentionPlan plan = validate_inputs(kOperation, inputs);
  const AttentionShape& shape = plan.shape;
  const std::array<NamedView, 2> of_forward{
      {{"context", footprint(results.context)}, {"log_sum_exp", footprint(results.log_sum_exp)}}};
  expect_shape(kOperation, of_forward[0],
               Extents<4>{shape.batch, shape.heads, shape.queries, shape.value_width});
  expect_shape(kOperation, of_forward[1], Extents<3>{shape.batch, shape.heads, shape.queries});
  validate_gradients(kOperation, inputs, shape, output_gradients, input_gradients, of_forward);

  const Call<T> call{inputs, plan, kernels::table_of<T>(*setting.target), setting.dropout};
  const BackwardPlan layout = plan_backward(call, setting.threads);
  std::byte* memory = WorkspaceAccess::reserve(WorkspaceAccess::of(options), layout.bytes);
  const Arguments<T> arguments{results, output_gradients, input_gradients, queries};
  Backward<T> work(call, arguments, layout, memory);
  work.run();
}

template void backward(const AttentionInputs<double>&, const ForwardResults<double>&,
                       const AttentionOutputGradients<double>&,
                       const AttentionInputGradients<double>&, const Options&, Queries);
template void backward(const AttentionInputs<float>&, const ForwardResults<float>&,
                       const AttentionOutputGradients<float>&,
                       const AttentionInputGradients<float>&, const Options&, Queries);

}  // namespace qkv::engine
