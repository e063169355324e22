// The derivatives, tile by tile:
//
//   p = exp(s − lse)     dv = pᵀ·dcontext      dp = dcontext·vᵀ (+ dweights)
//   ds = p·(dp − delta)  dq = ds·k             dk = dsᵀ·q            delta = dcontext·context (+ Σ p·dweights) − dlse
//
// A thread takes a chunk of keys of a kv head and keeps the gradients of its keys and values to itself; every tile of
// rows goes past. The gradient of a tile's queries is summed within the chunk first and added by the chunks in turn.
// This file says who takes what and when; backward_block and backward_delta compute.
#include <omp.h>

#include <algorithm>
#include <array>
#include <thread>

#include "engine/backward_block.h"
#include "engine/backward_delta.h"
#include "engine/division.h"
#include "engine/workspace.h"

namespace qkv::engine {
namespace {

using kernels::kGradientKeys;
using kernels::kGradientRows;

void wait_for(const std::atomic<Index>& counter, Index value) noexcept {
  while (counter.load(std::memory_order_acquire) != value) std::this_thread::yield();
}

/// Whether heads add to the same entries of the bias's gradient, so that they must do so in order.
template <class T>
bool heads_share_a_bias(const BackwardWork<T>& work) noexcept {
  if (!work.gradients.bias || work.sums_rows()) return false;
  const TensorView<T, 4>& bias = *work.gradients.bias;
  return (bias.shape(0) == 1 && work.shape().batch > 1) ||
         (bias.shape(1) == 1 && work.shape().kv_heads > 1);
}

/// In the chunk's turn: the first chunk writes, the others add. Adding 0 turns −0 into 0.
template <class T>
void write_queries(const BackwardWork<T>& work, const TileRows& rows, bool first_chunk, bool seen,
                   const GradientMemory<T>& own) noexcept {
  if (!first_chunk && !seen) return;
  const TensorView<T, 4>& gradient = work.gradients.query;
  const RowOrder order = work.order();
  const Index width = work.shape().key_width;
  for (Index row = 0; row < rows.count; ++row) {
    const Index h = order.head_of(rows.kv, rows.first + row);
    const Index t = order.query_of(rows.first + row);
    T* target = gradient.data() + rows.kv.b * gradient.stride(0) + h * gradient.stride(1) +
                t * gradient.stride(2);
    const T* from = own.query_gradient + row * work.plan.depth_columns;
    for (Index d = 0; d < width; ++d) {
      T& entry = target[d * gradient.stride(3)];
      entry = (first_chunk ? T{0} : entry) + (seen ? from[d] : T{0});
    }
    if (work.sums_rows()) {
      T& sum = work.row_sum(rows.kv.b, h, t);
      sum = (first_chunk ? T{0} : sum) + (seen ? own.gathered[row] : T{0});
    }
  }
}

template <class T>
void write_keys(const BackwardWork<T>& work, const KeyChunk& chunk,
                const GradientMemory<T>& own) noexcept {
  const auto write = [&](const TensorView<T, 4>& target, const T* from, Index columns) {
    for (Index key = 0; key < chunk.keys; ++key) {
      T* row = target.data() + chunk.kv.b * target.stride(0) + chunk.kv.head * target.stride(1) +
               (chunk.first_key + key) * target.stride(2);
      for (Index d = 0; d < target.shape(3); ++d) {
        row[d * target.stride(3)] = from[key * columns + d] + T{0};
      }
    }
  };
  write(work.gradients.key, own.key_gradient, work.plan.depth_columns);
  write(work.gradients.value, own.value_gradient, work.plan.value_columns);
}

/// All tiles of rows of a kv head against one chunk of its keys.
template <class T>
void run_chunk(const BackwardWork<T>& work, Index kv_number, Index number,
               const GradientMemory<T>& own, BlockRows<T>& scratch) noexcept {
  const BackwardPlan& plan = work.plan;
  KeyChunk chunk;
  chunk.kv = work.kv_head(kv_number);
  chunk.number = number;
  chunk.first_key = number * kChunkKeys;
  chunk.keys = std::min(kChunkKeys, work.shape().keys - chunk.first_key);
  pack_chunk(work, chunk, own);
  const Index blocks = divide_up(chunk.keys, kGradientKeys);
  std::fill_n(own.key_gradient, blocks * kGradientKeys * plan.depth_columns, T{0});
  std::fill_n(own.value_gradient, blocks * kGradientKeys * plan.value_columns, T{0});
  std::atomic<Index>* turns = work.turns(kv_number);
  QueryTile tile;
  // The last rows first, as under a causal mask all chunks see those.
  for (Index tile_number = plan.tiles - 1; tile_number >= 0; --tile_number) {
    assign_tile(work, chunk.kv, tile_number, tile);
    const KeyRange& keys = tile.rows.keys;
    const bool seen = keys.begin < chunk.first_key + chunk.keys && keys.end > chunk.first_key;
    if (seen) {
      pack_tile(work, tile, own);
      std::fill_n(own.query_gradient, kGradientRows * plan.depth_columns, T{0});
      std::fill_n(own.gathered, kGradientRows, T{0});
      for (Index block = 0; block < blocks; ++block) {
        const Index begin = chunk.first_key + block * kGradientKeys;
        if (keys.begin < begin + kGradientKeys && keys.end > begin) {
          differentiate(work, tile, chunk, block, own, scratch);
        }
      }
    }
    wait_for(turns[tile_number], number);
    write_queries(work, tile.rows, number == 0, seen, own);
    turns[tile_number].store(number + 1, std::memory_order_release);
  }
  write_keys(work, chunk, own);
}

/// Heads are handed out whole as long as there is one for each thread, for nobody waits then; the chunks of the others one
/// by one. Work is taken in order and waits only for work that comes before it.
template <class T>
void run_chunks(const BackwardWork<T>& work, std::atomic<Index>& next,
                const GradientMemory<T>& own) noexcept {
  const BackwardPlan& plan = work.plan;
  BlockRows<T> scratch;
  const bool serial = heads_share_a_bias(work);
  const Index whole = serial ? 0 : plan.whole_heads;
  for (;;) {
    const Index item = next.fetch_add(1, std::memory_order_relaxed);
    if (item < whole) {
      for (Index number = 0; number < plan.chunks; ++number) {
        run_chunk(work, item, number, own, scratch);
      }
      continue;
    }
    const Index kv_number = whole + (item - whole) / plan.chunks;
    const Index number = (item - whole) % plan.chunks;
    if (kv_number >= plan.kv_heads) return;
    if (serial && kv_number > 0) wait_for(work.done(kv_number - 1)[number], 1);
    run_chunk(work, kv_number, number, own, scratch);
    work.done(kv_number)[number].store(1, std::memory_order_release);
  }
}

template <class T>
void start(const BackwardWork<T>& work) noexcept {
  const BackwardPlan& plan = work.plan;
  const auto set_to_0 = [](std::atomic<Index>* counters, Index count) {
    for (Index i = 0; i < count; ++i) new (counters + i) std::atomic<Index>(0);
  };
  set_to_0(work.turns(0), plan.kv_heads * plan.tiles);
  set_to_0(work.done(0), plan.kv_heads * plan.chunks);
  if (work.gradients.bias) {
    const TensorView<T, 4>& bias = *work.gradients.bias;
    detail::for_each_offset(bias.shape(), bias.strides(),
                            [&](std::ptrdiff_t offset) { bias.data()[offset] = 0; });
  }
}

template <class T>
void run(const BackwardWork<T>& work) noexcept {
  const AttentionShape& shape = work.shape();
  const BackwardPlan& plan = work.plan;
  start(work);
  std::atomic<Index> next{0};
#pragma omp parallel num_threads(plan.threads) if (plan.threads > 1)
  {
    const GradientMemory<T> own = work.memory_of(omp_get_thread_num());
#pragma omp for schedule(static)
    for (Index row = 0; row < shape.batch * shape.heads * shape.queries; ++row) {
      prepare_query(work, row / shape.queries / shape.heads, row / shape.queries % shape.heads,
                    row % shape.queries);
    }
    if (work.upstream.weights) {
      BlockRows<T> scratch;
#pragma omp for schedule(dynamic)
      for (Index item = 0; item < plan.kv_heads * plan.tiles; ++item) {
        add_weights_to_delta(work, work.kv_head(item / plan.tiles), item % plan.tiles, own,
                             scratch);
      }
    }
    run_chunks(work, next, own);
    if (work.gradients.sink) {
#pragma omp for schedule(static)
      for (Index h = 0; h < shape.heads; ++h) write_sink_gradient(work, h);
    }
  }
  if (work.sums_rows()) add_row_sums(work);
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
  run(BackwardWork<T>{call, results, output_gradients, input_gradients, queries, layout, memory});
}

template void backward(const AttentionInputs<double>&, const ForwardResults<double>&,
                       const AttentionOutputGradients<double>&,
                       const AttentionInputGradients<double>&, const Options&, Queries);
template void backward(const AttentionInputs<float>&, const ForwardResults<float>&,
                       const AttentionOutputGradients<float>&,
                       const AttentionInputGradients<float>&, const Options&, Queries);

}  // namespace qkv::engine
