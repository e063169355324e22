// A pre-norm block: attention and MLP, each added to what it reads.
#pragma once

#include <optional>
#include <utility>

#include "model/attention.h"
#include "model/norm.h"

namespace qkv {

/// Parameters, or their gradients.
template <class T>
struct MlpParameters {
  NormParameters<T> norm;
  Tensor<T, 2> in_weight;   ///< [F,D]
  Tensor<T, 1> in_bias;     ///< [F]
  Tensor<T, 2> out_weight;  ///< [D,F]
  Tensor<T, 1> out_bias;    ///< [D]
};

template <class T>
struct BlockParameters {
  NormParameters<T> attention_norm;
  BlockAttentionParameters<T> attention;
  std::optional<MlpParameters<T>> mlp = std::nullopt;
};

struct BlockOptions {
  BlockAttentionOptions attention;
  double norm_epsilon = 1e-5;
};

template <class T>
struct MlpResult {
  Tensor<T, 3> normed;     ///< [B,T,D]
  Tensor<T, 3> activated;  ///< [B,T,F], after the GELU
  Tensor<T, 3> slope;      ///< [B,T,F], the GELU's derivative
};

/// What a forward call computes, with what the backward call needs.
template <class T>
struct BlockResult {
  Tensor<T, 3> input;   ///< [B,T,D]
  Tensor<T, 3> normed;  ///< [B,T,D], what the attention reads
  BlockAttentionResult<T> attention;
  Tensor<T, 3> middle;  ///< [B,T,D], input and attention added
  std::optional<MlpResult<T>> mlp = std::nullopt;

  /// [B,H,T,T], where asked for.
  const std::optional<Tensor<T, 4>>& weights() const noexcept { return attention.module.weights; }
};

/// The block's output [B,T,D], and what led to it.
template <class T>
std::pair<Tensor<T, 3>, BlockResult<T>> run_block(const BlockOptions& options,
                                                  const BlockParameters<T>& parameters,
                                                  Tensor<T, 3> input,
                                                  const std::optional<Tensor<bool, 2>>& keep,
                                                  ReturnWeights return_weights);

/// `gradient` [B,T,D] is that of the output, and becomes that of the input.
template <class T>
BlockParameters<T> run_block_backward(const BlockOptions& options,
                                      const BlockParameters<T>& parameters,
                                      const std::optional<Tensor<bool, 2>>& keep,
                                      const BlockResult<T>& result, Tensor<T, 3>& gradient);

/// What the MLP adds to `middle`.
template <class T>
std::pair<Tensor<T, 3>, MlpResult<T>> run_mlp(const MlpParameters<T>& parameters,
                                              const Tensor<T, 3>& middle, double norm_epsilon);

}  // namespace qkv
