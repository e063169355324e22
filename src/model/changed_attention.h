// Attention that the engine refuses to compute because it is wrong, or another kind: the weights in memory, plain loops, and the
// true gradient of just that computation.
#pragma once

#include "model/attention.h"

namespace qkv {

enum class MaskedWhen : std::uint8_t { BeforeSoftmax, AfterSoftmax };

/// What padding does to the score of query t and key s in head h.
enum class PaddingUse : std::uint8_t {
  HideKeys,     ///< −∞ where key s is padding
  None,         ///< nothing
  FillKeys,     ///< the fill where key s is padding
  FillQueries,  ///< the fill where query t is padding
  FillHeads,    ///< the fill where token h is padding; needs T = H
};

/// Scores are masked in this order: −∞ by the rules, then the fill over whatever is there. So a row that is filled from end to
/// end weighs all keys alike, those that the rules hide included.
struct ChangedAttention {
  MultiHeadAttentionOptions module;
  Mask rules;
  double scale = 1;
  Matching matching = Matching::DotProduct;
  double fill = -1e9;
  MaskedWhen masked = MaskedWhen::BeforeSoftmax;
  PaddingUse padding = PaddingUse::HideKeys;
  bool softmax_over_queries = false;
  bool merged_by_view = false;
  bool kv_heads_tiled = false;
};

/// The same arguments as attend.
template <class T>
BlockAttentionResult<T> attend_changed(const ChangedAttention& options,
                                       const BlockAttentionParameters<T>& parameters,
                                       const Tensor<T, 3>& input,
                                       const std::optional<Tensor<bool, 2>>& keep);

/// The same arguments as attend_backward.
template <class T>
BlockAttentionGradients<T> attend_changed_backward(const ChangedAttention& options,
                                                   const BlockAttentionParameters<T>& parameters,
                                                   const Tensor<T, 3>& input,
                                                   const std::optional<Tensor<bool, 2>>& keep,
                                                   const BlockAttentionResult<T>& result,
                                                   const Tensor<T, 3>& output_gradient);

}  // namespace qkv
