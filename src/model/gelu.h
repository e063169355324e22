// The Gaussian error linear unit. Source: Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016).
#pragma once

#include "qkv/tensor.h"

namespace qkv {

/// value becomes x·Φ(x) of the x that it holds, slope the derivative Φ(x) + x·φ(x). The same shape.
template <class T>
void gelu(Tensor<T, 3>& value, Tensor<T, 3>& slope);

/// The same bits, without the derivative.
template <class T>
void gelu(Tensor<T, 3>& value);

}  // namespace qkv
