// Root-mean-square norm over the last axis, as models apply it to queries and keys before the scores.
// Source: Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019), eq. 4.
#pragma once

#include "qkv/tensor.h"

namespace qkv {

/// output = input / √(mean(input²) + epsilon) · weight over the last axis of [B,H,T,D]; weight is [D].
/// Any strides; `output` may be `input` itself but may not overlap it otherwise. T is double or float;
/// sums are float64. Throws std::invalid_argument where shapes do not fit, epsilon is negative or not
/// finite, or views overlap.
template <class T>
void rms_norm(const TensorView<const T, 4>& input, const TensorView<const T, 1>& weight,
              double epsilon, const TensorView<T, 4>& output);

template <class T>
struct RmsNormGradients {
  TensorView<T, 4> input;   ///< [B,H,T,D]
  TensorView<T, 1> weight;  ///< [D]
};

/// Derivatives with respect to input and weight, overwritten; views may not overlap. A row whose output
/// gradient is all zero contributes nothing, even where its input is NaN or infinite. The same errors.
template <class T>
void rms_norm_backward(const TensorView<const T, 4>& input, const TensorView<const T, 1>& weight,
                       double epsilon, const TensorView<const T, 4>& output_gradient,
                       const RmsNormGradients<T>& gradients);

}  // namespace qkv
