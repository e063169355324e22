// How results are held against the oracle's.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "qkv/attention.h"

namespace qkv::cases {

/// Largest difference; infinite where a NaN or an infinity stands on one side only.
template <class A>
double difference(std::span<const A> got, std::span<const double> expected) {
  double largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto value = static_cast<double>(got[i]);
    if (value == expected[i] || (std::isnan(value) && std::isnan(expected[i]))) continue;
    const double here = std::fabs(value - expected[i]);
    if (!std::isfinite(here)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, here);
  }
  return largest;
}

/// The largest finite magnitude.
template <class A>
double largest_magnitude(std::span<A> values) {
  double largest = 0;
  for (const A value : values) {
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(static_cast<double>(value)));
  }
  return largest;
}

inline double magnitude(std::span<const double> values) { return largest_magnitude(values); }

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
