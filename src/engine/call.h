// One checked call of the engine, shared by all threads, and how its rows are laid out.
#pragma once

#include <numbers>

#include "base/validate.h"
#include "engine/setting.h"
#include "kernels/kernel_table.h"
#include "qkv/engine.h"

namespace qkv::engine {

/// A stored number as the engine computes with it.
template <class A, class T>
A widened(T x) noexcept {
  if constexpr (std::is_same_v<A, T>) {
    return x;
  } else {
    return static_cast<A>(static_cast<double>(x));
  }
}

template <class T>
struct Call {
  using A = Arithmetic<T>;

  const AttentionInputs<T>& inputs;
  const AttentionPlan& plan;
  const kernels::KernelTable<A>& kernels;
  std::optional<Dropout> dropout;

  const AttentionShape& shape() const noexcept { return plan.shape; }
  /// Softcap, bias and ALiBi stand between the product and the score.
  bool modified() const noexcept {
    return inputs.softcap.has_value() || inputs.bias.has_value() || inputs.alibi.has_value();
  }
  /// What the queries are multiplied by. Scores times base() are logarithms to base 2.
  A query_scale() const noexcept {
    return static_cast<A>(modified() ? plan.scale : plan.scale * std::numbers::log2e);
  }
  A base() const noexcept { return modified() ? std::numbers::log2e_v<A> : A{1}; }
};

/// Rows of one head of [B,H,T,D] from `first` on, where they lie.
template <class T>
kernels::Strided<T> rows_from(const TensorView<const T, 4>& view, Index b, Index h,
                              Index first) noexcept {
  return {view.data() + b * view.stride(0) + h * view.stride(1) + first * view.stride(2),
          view.stride(2), view.stride(3)};
}

/// The heads that share keys and values.
struct KvHead {
  Index b = 0;
  Index head = 0;  ///< of the keys and values
};

/// The rows of queries of one kv head: the heads of the group side by side, query by query, so that rows of neighbouring
/// positions, which see much the same keys, lie together.
struct RowOrder {
  Index group = 1;
  Index query_of(Index row) const noexcept { return row / group; }
  Index head_of(const KvHead& kv, Index row) const noexcept {
    return kv.head * group + row % group;
  }
};

}  // namespace qkv::engine
