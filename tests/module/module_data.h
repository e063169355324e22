// A module with random parameters and inputs, and what tests do with them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "qkv/multi_head_attention.h"

namespace qkv::cases {

/// Calls visit(name, elements) for each parameter that is present.
template <class Parameters, class Visit>
void for_each_parameter(Parameters& p, Visit visit) {
  visit("query_weight", p.query_weight.elements());
  visit("key_weight", p.key_weight.elements());
  visit("value_weight", p.value_weight.elements());
  visit("output_weight", p.output_weight.elements());
  if (p.query_bias) visit("query_bias", p.query_bias->elements());
  if (p.key_bias) visit("key_bias", p.key_bias->elements());
  if (p.value_bias) visit("value_bias", p.value_bias->elements());
  if (p.output_bias) visit("output_bias", p.output_bias->elements());
  if (p.query_norm) visit("query_norm", p.query_norm->elements());
  if (p.key_norm) visit("key_norm", p.key_norm->elements());
}

/// Weights of a size that keeps activations of the order of 1, biases and norms random.
template <class T>
MultiHeadAttention<T> random_module(const MultiHeadAttentionOptions& options, std::uint64_t seed);

/// The tensors of one call; views of them are its inputs.
template <class T>
struct ModuleData {
  Tensor<T, 3> query;
  std::optional<Tensor<T, 3>> key;
  std::optional<Tensor<T, 3>> value;
  std::optional<Tensor<T, 4>> bias;
  std::optional<Tensor<Index, 2>> query_positions;
  std::optional<Tensor<Index, 2>> key_positions;
  Mask mask;
  std::optional<Alibi> alibi;

  MultiHeadAttentionInputs<T> inputs() const;
};

/// The derivatives of a call whose output and, where given, weights have these derivatives.
template <class T>
MultiHeadAttentionGradients<T> gradients_of(const MultiHeadAttention<T>& module,
                                            const MultiHeadAttentionInputs<T>& inputs,
                                            const Tensor<T, 3>& output_gradient);

/// Every gradient, by name: inputs, bias, parameters.
template <class T>
std::vector<std::pair<std::string, std::vector<T>>> flattened(
    const MultiHeadAttentionGradients<T>& gradients);

template <class T, int Rank>
std::span<const T> elements_of(const Tensor<T, Rank>& tensor) {
  return tensor.elements();
}
template <class T>
std::span<const T> elements_of(const std::vector<T>& elements) {
  return elements;
}

template <class A>
bool same_bits(const A& a, const A& b) {
  const auto x = elements_of(a);
  const auto y = elements_of(b);
  return x.size() == y.size() &&
         (x.empty() || std::memcmp(x.data(), y.data(), x.size_bytes()) == 0);
}

/// Largest difference, relative to the largest magnitude that is expected (at least 1).
template <class A, class B>
double difference(const A& actual, const B& expected) {
  const auto x = elements_of(actual);
  const auto y = elements_of(expected);
  if (x.size() != y.size()) return std::numeric_limits<double>::infinity();
  double largest = 1;
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double gap = std::fabs(static_cast<double>(x[i]) - static_cast<double>(y[i]));
    if (!(gap <= worst)) worst = gap;  // not std::max, which would drop a NaN
    largest = std::max(largest, std::fabs(static_cast<double>(y[i])));
  }
  return worst / largest;
}

}  // namespace qkv::cases
