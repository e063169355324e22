// One vector of the tokens of a text. Source: Reimers and Gurevych, "Sentence-BERT" (2019).
#pragma once

#include <cstdint>
#include <optional>

#include "qkv/tensor.h"

namespace qkv {

enum class Pooling : std::uint8_t {
  Mean,  ///< of the tokens that are not padding
  First,
};

struct PoolingOptions {
  Pooling pooling = Pooling::Mean;
  bool normalize = false;  ///< to length 1
};

template <class T>
struct PooledTokens {
  Tensor<T, 2> vectors;  ///< [B,D]
  Tensor<T, 1> lengths;  ///< [B], before they became 1
};

/// tokens [B,T,D], keep [B,T]. Vectors of length 0 stay what they are; so do those of samples without tokens, which are 0.
template <class T>
PooledTokens<T> pool(const PoolingOptions& options, const Tensor<T, 3>& tokens,
                     const std::optional<Tensor<bool, 2>>& keep);

/// The derivative with respect to the tokens [B,T,D], from that with respect to the vectors [B,D].
template <class T>
Tensor<T, 3> pool_backward(const PoolingOptions& options,
                           const std::optional<Tensor<bool, 2>>& keep,
                           const PooledTokens<T>& pooled, const Tensor<T, 2>& gradient,
                           Index tokens);

}  // namespace qkv
