// What forward, backward and cached decoding share.
#pragma once

#include "model/decoder.h"

namespace qkv {

BlockOptions block_options(const DecoderOptions& options, Index block);

/// Parameters of the right shapes with their initial values.
template <class T>
DecoderParameters<T> initial_parameters(const DecoderOptions& options, std::uint64_t seed);

/// Gives the second of tied projections the values of the first.
template <class T>
void tie(const DecoderOptions& options, DecoderParameters<T>& parameters);

/// E[token] + P[position], where position counts from `first`: [B,T,D].
template <class T>
Tensor<T, 3> embed(const DecoderParameters<T>& parameters, const Tensor<Index, 2>& tokens,
                   Index first);

/// The matrix that makes logits [V,D].
template <class T>
const Tensor<T, 2>& head_of(const DecoderParameters<T>& parameters) {
  return parameters.head ? *parameters.head : parameters.token_embedding;
}

}  // namespace qkv
