#include "engine/backward_plan.h"

#include <algorithm>

#include "engine/division.h"
#include "engine/workspace.h"

namespace qkv::engine {
namespace {

using kernels::kGradientKeys;
using kernels::kGradientRows;

}  // namespace

template <class T>
BackwardPlan plan_backward(const Call<T>& call, int threads) {
  const AttentionShape& shape = call.shape();
  const Index n = call.kernels.panel_width;
  const Index rows = shape.queries * shape.group();
  BackwardPlan plan;
  plan.kv_heads = shape.batch * shape.kv_heads;
  plan.chunks = std::max<Index>(divide_up(shape.keys, kChunkKeys), 1);
  plan.tiles = divide_up(rows, kGradientRows);
  plan.depth_columns = divide_up(std::max<Index>(shape.key_width, 1), n) * n;
  plan.value_columns = divide_up(std::max<Index>(shape.value_width, 1), n) * n;
  plan.key_panels = kGradientKeys * shape.key_width;
  plan.value_panels = kGradientKeys * shape.value_width;
  const double work = static_cast<double>(plan.kv_heads) * static_cast<double>(rows) *
                      static_cast<double>(shape.keys) *
                      static_cast<double>(shape.key_width + shape.value_width);
  plan.threads = static_cast<int>(
      std::max<Index>(std::min(useful_threads(work, threads), plan.kv_heads * plan.chunks), 1));
  plan.whole_heads = plan.kv_heads - plan.kv_heads % plan.threads;

  Layout layout;
  const std::size_t queries = product({shape.batch, shape.heads, shape.queries});
  plan.turns_at = layout.add<std::atomic<Index>>(product({plan.kv_heads, plan.tiles}));
  plan.done_at = layout.add<std::atomic<Index>>(product({plan.kv_heads, plan.chunks}));
  plan.delta_at = layout.add<T>(queries);
  plan.unused_at = layout.add<std::uint8_t>(queries);
  if (call.inputs.bias && call.inputs.bias->shape(3) == 1)
    plan.row_sums_at = layout.add<T>(queries);

  Layout own;
  const Index widest = std::max({shape.key_width, shape.value_width, Index{1}});
  const std::size_t square = product({kGradientRows, kernels::kScoreStride});
  plan.query_blocks_at = own.add<T>(product({kGradientRows, shape.key_width}));
  plan.query_rows_at = own.add<T>(product({kGradientRows, plan.depth_columns}));
  plan.gradient_blocks_at = own.add<T>(product({kGradientRows, shape.value_width}));
  plan.gradient_rows_at = own.add<T>(product({kGradientRows, plan.value_columns}));
  plan.gathered_at = own.add<T>(product({kGradientRows, widest}));
  plan.lse_at = own.add<T>(kGradientRows);
  plan.row_delta_at = own.add<T>(kGradientRows);
  plan.weights_at = own.add<T>(square);
  plan.score_gradient_at = own.add<T>(square);
  plan.bias_gradient_at = own.add<T>(square);
  plan.slopes_at = own.add<T>(product({kernels::kMostBlockRows, kernels::kScoreStride}));
  plan.upstream_at = own.add<T>(product({kernels::kMostBlockRows, kGradientKeys}));
  plan.visible_at = own.add<std::uint8_t>(product({kGradientRows, kGradientKeys}));
  plan.query_gradient_at = own.add<T>(product({kGradientRows, plan.depth_columns}));
  plan.keys_at = own.add<T>(product({kChunkBlocks, plan.key_panels}));
  plan.key_rows_at = own.add<T>(product({kChunkKeys, plan.depth_columns}));
  plan.values_at = own.add<T>(product({kChunkBlocks, plan.value_panels}));
  plan.key_gradient_at = own.add<T>(product({kChunkKeys, plan.depth_columns}));
  plan.value_gradient_at = own.add<T>(product({kChunkKeys, plan.value_columns}));
  plan.thread_bytes = own.bytes();
  plan.threads_at =
      layout.add<std::byte>(product({plan.threads, static_cast<Index>(plan.thread_bytes)}));
  plan.bytes = layout.bytes();
  return plan;
}

template BackwardPlan plan_backward(const Call<double>&, int);
template BackwardPlan plan_backward(const Call<float>&, int);

}  // namespace qkv::engine
