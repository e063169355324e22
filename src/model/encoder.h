// An encoder of the BERT family: embeddings, and post-norm blocks in which every token sees every other.
//
//   x = norm(E[token] + P[position] + S[0])
//   m = norm(x + attention(x));  x = norm(m + W₂·gelu(W₁·m + b₁) + b₂)        for each block
//
// Every result is the same bits on any number of threads. Sources: Devlin et al., "BERT" (2019); Vaswani et al., "Attention Is
// All You Need" (2017).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/block.h"
#include "model/named_parameter.h"
#include "qkv/multi_head_attention.h"

namespace qkv {

struct EncoderOptions {
  Index vocabulary = 30522;
  Index context = 512;  ///< most tokens of a sequence
  Index token_types = 2;
  Index model_width = 768;
  Index layers = 12;
  Index heads = 12;
  Index mlp_width = 3072;
  double norm_epsilon = 1e-12;
};

/// How every block computes.
BlockOptions block_options(const EncoderOptions& options);

/// Parameters, or their gradients.
template <class T>
struct EncoderParameters {
  Tensor<T, 2> token_embedding;     ///< [V,D]
  Tensor<T, 2> position_embedding;  ///< [context,D]
  Tensor<T, 2> type_embedding;      ///< [types,D]
  NormParameters<T> embedding_norm;
  std::vector<BlockParameters<T>> blocks;
};

/// Padded sequences.
struct EncoderBatch {
  Tensor<Index, 2> tokens;  ///< [B,T], below vocabulary
  /// [B,T], false at padding; absent: no padding.
  std::optional<Tensor<bool, 2>> keep = std::nullopt;
};

/// Sequences whose embeddings are given: the sums that the first norm is taken of.
template <class T>
struct EmbeddedBatch {
  Tensor<T, 3> embedding;  ///< [B,T,D]
  std::optional<Tensor<bool, 2>> keep = std::nullopt;
};

/// What a forward call computes, with what the backward call needs.
template <class T>
struct EncoderResult {
  Tensor<T, 3> embedding;              ///< [B,T,D], before the first norm
  std::vector<BlockResult<T>> blocks;  ///< their weights [B,H,T,T] where asked for
  Tensor<T, 3> output;                 ///< [B,T,D]
};

template <class T>
struct EncoderGradients {
  /// Without those of the three embeddings where these were given.
  EncoderParameters<T> parameters;
  Tensor<T, 3> embedding;                      ///< [B,T,D], of the sum of the embeddings
  std::vector<Tensor<T, 3>> attention_output;  ///< [B,T,D], of what each block's attention adds

  /// In the order of Encoder::parameters.
  std::vector<NamedParameter<const T>> list(const EncoderOptions& options) const;
};

/// A BlockEdit for each block.
template <class T>
using EncoderEdit =
    std::function<void(Index block, BlockSite site, const TensorView<T, 4>& values)>;

/// T is float or double. Calls are re-entrant on a const encoder.
template <class T>
class Encoder {
 public:
  /// Throws std::invalid_argument where options do not fit together or parameters do not fit them.
  Encoder(const EncoderOptions& options, EncoderParameters<T> parameters);

  const EncoderOptions& options() const noexcept { return options_; }
  const EncoderParameters<T>& tensors() const noexcept { return parameters_; }
  /// By the names that files have: "encoder.layer.0.attention.self.query.weight".
  std::vector<NamedParameter<const T>> parameters() const;

  /// The sums of the embeddings [B,T,D]. Throws std::invalid_argument where tokens do not fit.
  Tensor<T, 3> embed(const Tensor<Index, 2>& tokens) const;

  /// The output [B,T,D] alone, the same bits as forward's; 0 at padding, for which nothing is computed. Throws
  /// std::invalid_argument where the batch does not fit.
  Tensor<T, 3> encode(const EncoderBatch& batch) const;

  /// Throws std::invalid_argument where the batch does not fit.
  EncoderResult<T> forward(const EncoderBatch& batch,
                           ReturnWeights return_weights = ReturnWeights::No) const;
  EncoderResult<T> forward(const EmbeddedBatch<T>& batch,
                           ReturnWeights return_weights = ReturnWeights::No,
                           const EncoderEdit<T>& edit = {}) const;

  /// Derivatives of a loss whose derivatives with respect to the output are given; batch and result are the forward call's.
  EncoderGradients<T> backward(const EncoderBatch& batch, const EncoderResult<T>& result,
                               const Tensor<T, 3>& output_gradient) const;
  EncoderGradients<T> backward(const EmbeddedBatch<T>& batch, const EncoderResult<T>& result,
                               const Tensor<T, 3>& output_gradient) const;

 private:
  EncoderResult<T> run(Tensor<T, 3> embedding, const std::optional<Tensor<bool, 2>>& keep,
                       ReturnWeights return_weights, const EncoderEdit<T>& edit) const;
  EncoderGradients<T> run_backward(const std::optional<Tensor<bool, 2>>& keep,
                                   const EncoderResult<T>& result,
                                   const Tensor<T, 3>& output_gradient) const;

  EncoderOptions options_;
  EncoderParameters<T> parameters_;
};

}  // namespace qkv
