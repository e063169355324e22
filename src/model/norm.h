// Norms over the last axis, forward and backward. Sources: Ba, Kiros and Hinton, "Layer Normalization" (2016); for the other one
// qkv/rms_norm.h.
//
//   LayerNorm   y = (x − mean(x)) / √(var(x) + ε) · w + b        RmsNorm   y = x / √(mean(x²) + ε) · w
#pragma once

#include <cstdint>
#include <optional>

#include "qkv/tensor.h"

namespace qkv {

enum class NormKind : std::uint8_t { LayerNorm, RmsNorm };

/// Parameters, or their gradients.
template <class T>
struct NormParameters {
  Tensor<T, 1> weight;                              ///< [D]
  std::optional<Tensor<T, 1>> bias = std::nullopt;  ///< [D], of LayerNorm
};

/// Weights one, biases zero.
template <class T>
NormParameters<T> initial_norm(NormKind kind, Index width);

/// [B,T,D] to [B,T,D]; the parameters say which norm it is.
template <class T>
Tensor<T, 3> norm(const Tensor<T, 3>& input, const NormParameters<T>& parameters, double epsilon);

/// The same bits, where the input was.
template <class T>
void norm_in_place(Tensor<T, 3>& values, const NormParameters<T>& parameters, double epsilon);

/// Adds the derivative to input_gradient [B,T,D] and returns those of the parameters.
template <class T>
NormParameters<T> norm_backward(const Tensor<T, 3>& input, const NormParameters<T>& parameters,
                                double epsilon, const Tensor<T, 3>& output_gradient,
                                Tensor<T, 3>& input_gradient);

}  // namespace qkv
