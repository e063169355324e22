// A block: attention and MLP, each added to a residual stream. Norms are taken of what they read, or of the sums.
//
//   Before   m = x + attention(norm(x));  y = m + mlp(norm(m))        Radford et al. (2019)
//   After    m = norm(x + attention(x));  y = norm(m + mlp(m))        Vaswani et al. (2017), Devlin et al. (2019)
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "model/attention.h"
#include "model/block_edit.h"
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

enum class NormPlacement : std::uint8_t { Before, After };

struct BlockOptions {
  BlockAttentionOptions attention;
  double norm_epsilon = 1e-5;
  NormPlacement norms = NormPlacement::Before;
};

template <class T>
struct MlpResult {
  Tensor<T, 3> normed;     ///< [B,T,D], what it reads where norms come before; else empty
  Tensor<T, 3> activated;  ///< [B,T,F], after the GELU
  Tensor<T, 3> slope;      ///< [B,T,F], the GELU's derivative
  Tensor<T, 3> sum;  ///< [B,T,D], `middle` and the MLP added, where norms come after; else empty
};

/// What a forward call computes, with what the backward call needs.
template <class T>
struct BlockResult {
  Tensor<T, 3> input;   ///< [B,T,D]
  Tensor<T, 3> normed;  ///< [B,T,D], what the attention reads where norms come before; else empty
  BlockAttentionResult<T> attention;
  Tensor<T, 3> sum;     ///< [B,T,D], input and attention added, where norms come after; else empty
  Tensor<T, 3> middle;  ///< [B,T,D], what the MLP is added to
  std::optional<MlpResult<T>> mlp = std::nullopt;
  bool edited = false;

  const Tensor<T, 3>& attention_input() const noexcept {
    return normed.elements().empty() ? input : normed;
  }
  const Tensor<T, 3>& mlp_input() const noexcept {
    return mlp->normed.elements().empty() ? middle : mlp->normed;
  }
  /// [B,H,T,T], where asked for.
  const std::optional<Tensor<T, 4>>& weights() const noexcept { return attention.module.weights; }
};

/// Gradients of a block's parameters, and of what its attention adds: with that and Wo, those of the attention weights.
template <class T>
struct BlockGradients {
  BlockParameters<T> parameters;
  Tensor<T, 3> attention_output;  ///< [B,T,D]
};

/// The block's output [B,T,D], and what led to it. Throws std::invalid_argument where an edit meets attention that does not run
/// on the engine.
template <class T>
std::pair<Tensor<T, 3>, BlockResult<T>> run_block(const BlockOptions& options,
                                                  const BlockParameters<T>& parameters,
                                                  Tensor<T, 3> input,
                                                  const std::optional<Tensor<bool, 2>>& keep,
                                                  ReturnWeights return_weights,
                                                  const BlockEdit<T>& edit = {});

/// `gradient` [B,T,D] is that of the output, and becomes that of the input. Throws std::invalid_argument where the result was
/// edited.
template <class T>
BlockGradients<T> run_block_backward(const BlockOptions& options,
                                     const BlockParameters<T>& parameters,
                                     const std::optional<Tensor<bool, 2>>& keep,
                                     const BlockResult<T>& result, Tensor<T, 3>& gradient);

/// What the MLP adds to `middle` where norms come before.
template <class T>
std::pair<Tensor<T, 3>, MlpResult<T>> run_mlp(const MlpParameters<T>& parameters,
                                              const Tensor<T, 3>& middle, double norm_epsilon);

/// Of run_mlp: `gradient` is that of what the MLP adds and of `middle` besides; it becomes that of `middle` alone.
template <class T>
MlpParameters<T> run_mlp_backward(const MlpParameters<T>& parameters, const Tensor<T, 3>& middle,
                                  double norm_epsilon, const MlpResult<T>& result,
                                  Tensor<T, 3>& gradient);

}  // namespace qkv
