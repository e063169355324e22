// Comparisons of what the engine gave, for tests.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "tests/engine/run.h"

namespace qkv::cases {

template <class T>
bool same_bits(std::span<const T> a, std::span<const T> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

template <class A>
bool same_bits(const EngineOutputs<A>& a, const EngineOutputs<A>& b) {
  return same_bits<A>(a.context.elements(), b.context.elements()) &&
         same_bits<A>(a.weights.elements(), b.weights.elements()) &&
         same_bits<A>(a.log_sum_exp.elements(), b.log_sum_exp.elements());
}

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
double magnitude(std::span<const A> values) {
  double largest = 0;
  for (const A value : values) {
    const auto wide = static_cast<double>(value);
    if (std::isfinite(wide)) largest = std::max(largest, std::fabs(wide));
  }
  return largest;
}

}  // namespace qkv::cases
