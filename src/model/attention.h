// The attention of a block: MultiHeadAttention where the engine can compute what a change asks for, plain loops else.
#pragma once

#include <optional>

#include "model/attention_change.h"
#include "model/block_edit.h"
#include "qkv/multi_head_attention.h"

namespace qkv {

/// What the attention of a block computes.
struct BlockAttentionOptions {
  MultiHeadAttentionOptions module;
  std::optional<Index> window = std::nullopt;  ///< tokens that a query sees, itself included
  AttentionChange change = {};
};

/// Throws std::invalid_argument where a change does not fit the module.
void check_attention(const BlockAttentionOptions& options);

/// Whether MultiHeadAttention computes it.
bool runs_on_engine(const AttentionChange& change);

/// Which keys the rules of position show.
Mask position_rules(const BlockAttentionOptions& options);

/// What scores are multiplied by.
double score_scale(const BlockAttentionOptions& options);

/// Parameters, or their gradients.
template <class T>
struct BlockAttentionParameters {
  MultiHeadAttentionParameters<T> projections;
  std::optional<Tensor<T, 2>> matching = std::nullopt;  ///< [H,Dk] of additive matching
};

template <class T>
struct BlockAttentionResult {
  /// Of either way. Plain loops always give weights, and leave log_sum_exp empty.
  MultiHeadAttentionResult<T> module;
  /// [B,H,T,T] before hidden keys lost their weight, where a bug takes it from them after the softmax.
  std::optional<Tensor<T, 4>> normalised = std::nullopt;
};

template <class T>
struct BlockAttentionGradients {
  Tensor<T, 3> input;  ///< [B,T,D]
  BlockAttentionParameters<T> parameters;
};

/// input [B,T,D]; keep [B,T], false at padding. Throws std::invalid_argument where a bug cannot be computed at these sizes, or an
/// edit meets attention that does not run on the engine.
template <class T>
BlockAttentionResult<T> attend(const BlockAttentionOptions& options,
                               const BlockAttentionParameters<T>& parameters,
                               const Tensor<T, 3>& input,
                               const std::optional<Tensor<bool, 2>>& keep,
                               ReturnWeights return_weights = ReturnWeights::No,
                               const BlockEdit<T>& edit = {});

/// Arguments and result of the call to attend, and the derivative with respect to its output.
template <class T>
BlockAttentionGradients<T> attend_backward(const BlockAttentionOptions& options,
                                           const BlockAttentionParameters<T>& parameters,
                                           const Tensor<T, 3>& input,
                                           const std::optional<Tensor<bool, 2>>& keep,
                                           const BlockAttentionResult<T>& result,
                                           const Tensor<T, 3>& output_gradient);

}  // namespace qkv
