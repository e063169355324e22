// Projections as they enter the scores, and the way back, for attention that does not run through MultiHeadAttention.
#pragma once

#include <optional>

#include "qkv/rotary.h"
#include "qkv/tensor.h"

namespace qkv {

/// x·Wᵀ + b: [B,T,in] → [B,T,out].
template <class T>
Tensor<T, 3> projected(const Tensor<T, 3>& input, const Tensor<T, 2>& weight,
                       const std::optional<Tensor<T, 1>>& bias);

/// Positions first, first + 1, …, where there are some.
struct HeadPositions {
  std::optional<RotaryOptions> rotary = std::nullopt;
  Index first = 0;
};

/// [B,T,H·D] → [B,H,T,D], turned where there are positions.
template <class T>
Tensor<T, 4> enter_scores(const Tensor<T, 3>& projection, Index heads,
                          const HeadPositions& positions);

/// The derivative: [B,H,T,D] → [B,T,H·D], turned back.
template <class T>
Tensor<T, 3> leave_scores(Tensor<T, 4> gradient, const HeadPositions& positions);

}  // namespace qkv
