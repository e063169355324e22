// Linear projections of tokens on the engine's matrix product, forward and backward. Weights are [out, in], as PyTorch's.
//
//   y = x·Wᵀ + b        dx = dy·W        dW = dyᵀ·x        db = Σ dy over the tokens
//
// An element of dy that is zero contributes nothing to dW, even where x is NaN or infinite: a token that
// nobody sees has no gradient, and its garbage must not turn 0·NaN into NaN.
#pragma once

#include <optional>

#include "qkv/tensor.h"

namespace qkv {

/// y [B,T,out] of x [B,T,in] (any strides).
template <class T>
void project(const TensorView<const T, 3>& input, const Tensor<T, 2>& weight,
             const std::optional<Tensor<T, 1>>& bias, Tensor<T, 3>& output);

/// input_gradient [B,T,in] += dy·W.
template <class T>
void add_input_gradient(const TensorView<const T, 3>& output_gradient, const Tensor<T, 2>& weight,
                        Tensor<T, 3>& input_gradient);

/// [out, in].
template <class T>
Tensor<T, 2> weight_gradient(const TensorView<const T, 3>& output_gradient,
                             const TensorView<const T, 3>& input);

/// [out], summed in float64.
template <class T>
Tensor<T, 1> bias_gradient(const TensorView<const T, 3>& output_gradient);

}  // namespace qkv
