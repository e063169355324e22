// What the parts of a backward call share: its arguments, how it is divided, and its memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/backward_plan.h"

namespace qkv::engine {

/// Memory of one thread; see BackwardPlan.
template <class T>
struct GradientMemory {
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

/// A checked and planned backward call, as all its threads see it.
template <class T>
struct BackwardWork {
  const Call<T>& call;
  const ForwardResults<T>& results;
  const AttentionOutputGradients<T>& upstream;
  const AttentionInputGradients<T>& gradients;
  Queries queries;
  const BackwardPlan& plan;
  std::byte* memory;

  const AttentionShape& shape() const noexcept { return call.shape(); }
  RowOrder order() const noexcept { return {shape().group()}; }
  /// Rows of a kv head.
  Index rows() const noexcept { return shape().queries * shape().group(); }
  KvHead kv_head(Index number) const noexcept {
    return {number / shape().kv_heads, number % shape().kv_heads};
  }
  /// A bias that is the same for all keys: its gradient waits with those of the queries.
  bool sums_rows() const noexcept { return gradients.bias && call.inputs.bias->shape(3) == 1; }

  // Of each query.
  T& delta(Index b, Index h, Index t) const noexcept {
    return at<T>(plan.delta_at)[number_of(b, h, t)];
  }
  std::uint8_t& unused(Index b, Index h, Index t) const noexcept {
    return at<std::uint8_t>(plan.unused_at)[number_of(b, h, t)];
  }
  T& row_sum(Index b, Index h, Index t) const noexcept {
    return at<T>(plan.row_sums_at)[number_of(b, h, t)];
  }

  /// Of a kv head: for each tile which chunk may add next.
  std::atomic<Index>* turns(Index kv_number) const noexcept {
    return at<std::atomic<Index>>(plan.turns_at) + kv_number * plan.tiles;
  }
  /// Of a kv head: for each chunk whether it is done.
  std::atomic<Index>* done(Index kv_number) const noexcept {
    return at<std::atomic<Index>>(plan.done_at) + kv_number * plan.chunks;
  }

  GradientMemory<T> memory_of(int thread) const noexcept {
    const std::size_t first =
        plan.threads_at + static_cast<std::size_t>(thread) * plan.thread_bytes;
    const auto own = [&](std::size_t offset) { return at<T>(first + offset); };
    return {own(plan.query_blocks_at),
            own(plan.query_rows_at),
            own(plan.gradient_blocks_at),
            own(plan.gradient_rows_at),
            own(plan.gathered_at),
            own(plan.lse_at),
            own(plan.row_delta_at),
            own(plan.weights_at),
            own(plan.score_gradient_at),
            own(plan.bias_gradient_at),
            own(plan.slopes_at),
            own(plan.upstream_at),
            at<std::uint8_t>(first + plan.visible_at),
            own(plan.query_gradient_at),
            own(plan.keys_at),
            own(plan.key_rows_at),
            own(plan.values_at),
            own(plan.key_gradient_at),
            own(plan.value_gradient_at)};
  }

  template <class E>
  E* at(std::size_t offset) const noexcept {
    return reinterpret_cast<E*>(memory + offset);
  }
  Index number_of(Index b, Index h, Index t) const noexcept {
    return (b * shape().heads + h) * shape().queries + t;
  }
};

}  // namespace qkv::engine
