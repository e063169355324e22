// Ways to match a query with a key, written plainly in float32, to be timed beside each other.
#pragma once

#include "qkv/engine.h"

namespace qkv::lab {

/// Dense matrices.
struct MatchingInputs {
  Tensor<float, 2> query;   ///< [T,D]
  Tensor<float, 2> key;     ///< [S,D]
  Tensor<float, 1> weight;  ///< [D], of additive matching
};

/// Writes scores [T,S]. scale·q·k with scale 1/√D: one matrix product.
void match_by_dot_product(const MatchingInputs& inputs, Tensor<float, 2>& scores,
                          const engine::Options& options);
/// q·k / (|q|·|k|): rows divided by their norms, then the same product.
void match_by_cosine(const MatchingInputs& inputs, Tensor<float, 2>& scores,
                     const engine::Options& options);
/// w·tanh(q + k): D hyperbolic tangents a pair, and no product of matrices. Source: Bahdanau et al., "Neural Machine Translation by
/// Jointly Learning to Align and Translate" (2015), with the projections left to the caller.
void match_additively(const MatchingInputs& inputs, Tensor<float, 2>& scores);

}  // namespace qkv::lab
