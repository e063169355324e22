// A small transformer decoder that can be trained: embedding, pre-norm blocks of attention and MLP, and a head.
//
//   x = E[token] + P[position]                                   P only where positions are learned
//   x = x + attention(norm(x));  x = x + W₂·gelu(W₁·norm(x) + b₁) + b₂        for each block
//   logits = norm(x)·Eᵀ                                          or a matrix of its own in place of E
//
// Every result is the same bits on any number of threads. Sources: Radford et al., "Language Models are Unsupervised Multitask
// Learners" (2019) for the block and its initial values; Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/attention_change.h"
#include "model/block.h"
#include "model/cross_entropy.h"
#include "model/named_parameter.h"
#include "qkv/multi_head_attention.h"

namespace qkv {

enum class PositionKind : std::uint8_t {
  Learned,  ///< a vector for each position, added to the token's
  Rotary,
  None,  ///< the causal rule alone tells the order
};

struct DecoderOptions {
  Index vocabulary = 256;
  Index context = 64;  ///< most tokens of a sequence
  Index model_width = 64;
  Index layers = 2;
  Index heads = 4;
  std::optional<Index> kv_heads = std::nullopt;    ///< heads where absent
  std::optional<Index> head_width = std::nullopt;  ///< model_width / heads where absent
  std::optional<Index> mlp_width = std::nullopt;   ///< 4·model_width where absent; 0: no MLP
  PositionKind positions = PositionKind::Learned;
  double rotary_base = 10000.0;
  NormKind norm = NormKind::LayerNorm;
  double norm_epsilon = 1e-5;
  ProjectionBiases biases = {};  ///< of the attention's projections
  bool tied_head = true;         ///< the head is the embedding
  /// A query sees itself and the tokens before it, this many in all; every one before it where absent.
  std::optional<Index> window = std::nullopt;
  /// Empty: none. One for every block, or one a block.
  std::vector<AttentionChange> changes = {};
};

struct TokenBatch {
  Tensor<Index, 2> tokens;   ///< [B,T], below vocabulary
  Tensor<Index, 2> targets;  ///< [B,T], below vocabulary or kIgnoredTarget
  std::optional<Tensor<bool, 2>> keep =
      std::nullopt;  ///< [B,T], false at padding; absent: no padding
};

/// Parameters, or their gradients. Where projections are tied, the second of them is a copy of the first, and its gradient is in
/// that of the first.
template <class T>
struct DecoderParameters {
  Tensor<T, 2> token_embedding;                                   ///< [V,D]
  std::optional<Tensor<T, 2>> position_embedding = std::nullopt;  ///< [context,D]
  std::vector<BlockParameters<T>> blocks;
  NormParameters<T> final_norm;
  std::optional<Tensor<T, 2>> head = std::nullopt;  ///< [V,D] where it is not tied
};

/// What a forward call computes, with what the backward call needs.
template <class T>
struct DecoderResult {
  Tensor<T, 3> logits;                 ///< [B,T,V]
  std::vector<BlockResult<T>> blocks;  ///< their weights [B,H,T,T] where asked for
  Tensor<T, 3> last;                   ///< [B,T,D], before the final norm
  Tensor<T, 3> normed;                 ///< [B,T,D], after it
};

template <class T>
struct DecoderGradients {
  DecoderParameters<T> parameters;
  Tensor<T, 3> input;  ///< [B,T,D], of the sum of token and position embedding

  /// In the order of Decoder::parameters.
  std::vector<NamedParameter<const T>> list(const DecoderOptions& options) const;
};

/// T is float or double. Calls are re-entrant on a const decoder.
template <class T>
class Decoder {
 public:
  /// Weights normal with deviation 1/√(columns), those that end in the residual stream divided by √(2·layers); embeddings with
  /// deviation 0.02; biases zero. Throws std::invalid_argument where options do not fit together.
  Decoder(DecoderOptions options, std::uint64_t seed);

  const DecoderOptions& options() const noexcept { return options_; }
  /// What is trained: each once, tied ones under the first name.
  std::vector<NamedParameter<const T>> parameters() const;
  /// How many numbers that is.
  Index parameter_count() const;
  /// Lets `change` write to the parameters; tied ones follow.
  void update(const std::function<void(std::span<const NamedParameter<T>>)>& change);
  const DecoderParameters<T>& tensors() const noexcept { return parameters_; }

  /// Throws std::invalid_argument where tokens, targets or padding do not fit, or a change cannot be computed at these sizes.
  DecoderResult<T> forward(const TokenBatch& batch,
                           ReturnWeights return_weights = ReturnWeights::No) const;
  /// Derivatives of a loss whose derivatives with respect to the logits are given; batch and result are the forward call's.
  DecoderGradients<T> backward(const TokenBatch& batch, const DecoderResult<T>& result,
                               const Tensor<T, 3>& logits_gradient) const;

  /// The change of a block: the default where there is none.
  const AttentionChange& change(Index block) const noexcept;

 private:
  DecoderOptions options_;
  DecoderParameters<T> parameters_;
};

}  // namespace qkv
