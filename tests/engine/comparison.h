// The magnitudes that errors are measured against.
#pragma once

#include <algorithm>
#include <cmath>

#include "tests/engine/bits.h"

namespace qkv::cases {

/// The largest Euclidean norm of a row of the last axis.
template <class T>
double largest_norm(const TensorView<const T, 4>& view) {
  double largest = 0;
  for (Index b = 0; b < view.shape(0); ++b) {
    for (Index h = 0; h < view.shape(1); ++h) {
      for (Index t = 0; t < view.shape(2); ++t) {
        double sum = 0;
        for (Index d = 0; d < view.shape(3); ++d) {
          sum += static_cast<double>(view(b, h, t, d)) * static_cast<double>(view(b, h, t, d));
        }
        largest = std::max(largest, std::sqrt(sum));
      }
    }
  }
  return largest;
}

/// The magnitude that enters a score: that of the norms of query and key, for their products may cancel.
template <class T>
double entering_score(const AttentionInputs<T>& inputs) {
  const double scale =
      inputs.scale.value_or(1 / std::sqrt(static_cast<double>(inputs.query.shape(3))));
  return std::fabs(scale) * largest_norm(inputs.query) * largest_norm(inputs.key);
}

/// The magnitude that enters the gradient of a score, typically: |dcontext|·|v|/√Dv; its mean is subtracted.
template <class T>
double entering_gradient(const AttentionInputs<T>& inputs,
                         const TensorView<const T, 4>& context_gradient) {
  return largest_norm(context_gradient) * largest_norm(inputs.value) /
         std::sqrt(static_cast<double>(inputs.value.shape(3)));
}

}  // namespace qkv::cases
