#include "module/module_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "base/validate.h"

namespace qkv {
namespace {

constexpr std::string_view kOperation = "MultiHeadAttention";

template <class Got>
[[noreturn]] void fail(std::string_view argument, std::string_view expected, const Got& got) {
  throw std::invalid_argument(
      fmt::format("{}: {}: expected {}, got {}", kOperation, argument, expected, got));
}

void expect_positive(std::string_view argument, Index value) {
  if (value <= 0) fail(argument, "a positive number", value);
}

/// heads · width, which must be countable.
Index rows_of(std::string_view argument, Index heads, Index width) {
  const Extents<2> extents{heads, width};
  try {
    return element_count(extents);
  } catch (const std::invalid_argument&) {
    fail(argument, "a number of heads times a head width below 2^63",
         fmt::format("{} x {}", heads, width));
  }
}

void check_rotary(const RotaryOptions& rotary, Index head_width) {
  const Index width = rotary.width.value_or(head_width);
  if (width < 0 || width > head_width || width % 2 != 0) {
    fail("rotary.width", fmt::format("an even number of at most the head width {}", head_width),
         width);
  }
  if (!(std::isfinite(rotary.base) && rotary.base > 0)) {
    fail("rotary.base", "a positive finite number", rotary.base);
  }
}

void check_numbers(const MultiHeadAttentionOptions& options) {
  if (options.scale && !std::isfinite(*options.scale)) {
    fail("scale", "a finite number", *options.scale);
  }
  if (options.softcap && !(std::isfinite(*options.softcap) && *options.softcap > 0)) {
    fail("softcap", "a positive finite number", *options.softcap);
  }
  if (options.qk_norm &&
      !(std::isfinite(options.qk_norm->epsilon) && options.qk_norm->epsilon >= 0)) {
    fail("qk_norm.epsilon", "a finite number of 0 or more", options.qk_norm->epsilon);
  }
}

template <class T>
void check_optional(std::string_view operation, std::string_view name, bool expected, Index width,
                    const std::optional<Tensor<T, 1>>& parameter) {
  if (expected != parameter.has_value()) {
    throw std::invalid_argument(
        fmt::format("{}: {}: expected {} by the options, got {}", operation, name,
                    expected ? fmt::format("shape [{}]", width) : "none",
                    parameter ? fmt::format("shape {}", to_string(parameter->shape())) : "none"));
  }
  if (parameter) expect_shape(operation, {name, footprint(parameter->view())}, Extents<1>{width});
}

}  // namespace

ModuleSizes checked_sizes(const MultiHeadAttentionOptions& options) {
  ModuleSizes sizes;
  sizes.model_width = options.model_width;
  sizes.heads = options.heads;
  expect_positive("model_width", options.model_width);
  expect_positive("heads", options.heads);
  if (!options.head_width && options.model_width % options.heads != 0) {
    fail("heads", fmt::format("a divisor of model_width {}", options.model_width), options.heads);
  }
  sizes.kv_heads = options.kv_heads.value_or(options.heads);
  if (sizes.kv_heads <= 0 || options.heads % sizes.kv_heads != 0) {
    fail("kv_heads", fmt::format("a positive divisor of heads {}", options.heads), sizes.kv_heads);
  }
  sizes.head_width = options.head_width.value_or(options.model_width / options.heads);
  sizes.value_head_width = options.value_head_width.value_or(sizes.head_width);
  sizes.key_input_width = options.key_width.value_or(options.model_width);
  sizes.value_input_width = options.value_width.value_or(options.model_width);
  expect_positive("head_width", sizes.head_width);
  expect_positive("value_head_width", sizes.value_head_width);
  expect_positive("key_width", sizes.key_input_width);
  expect_positive("value_width", sizes.value_input_width);
  if (options.rotary) check_rotary(*options.rotary, sizes.head_width);
  check_numbers(options);

  sizes.query_rows = rows_of("head_width", sizes.heads, sizes.head_width);
  sizes.key_rows = rows_of("head_width", sizes.kv_heads, sizes.head_width);
  sizes.value_rows = rows_of("value_head_width", sizes.kv_heads, sizes.value_head_width);
  sizes.merged_width = rows_of("value_head_width", sizes.heads, sizes.value_head_width);
  return sizes;
}

template <class T>
void check_parameters(std::string_view operation, const MultiHeadAttentionOptions& options,
                      const MultiHeadAttentionParameters<T>& parameters) {
  const ModuleSizes sizes = checked_sizes(options);
  const auto check = [&](std::string_view name, const Tensor<T, 2>& weight, Index out, Index in) {
    expect_shape(operation, {name, footprint(weight.view())}, Extents<2>{out, in});
  };
  check("query_weight", parameters.query_weight, sizes.query_rows, sizes.model_width);
  check("key_weight", parameters.key_weight, sizes.key_rows, sizes.key_input_width);
  check("value_weight", parameters.value_weight, sizes.value_rows, sizes.value_input_width);
  check("output_weight", parameters.output_weight, sizes.model_width, sizes.merged_width);

  const ProjectionBiases& biases = options.biases;
  const bool norm = options.qk_norm.has_value();
  check_optional(operation, "query_bias", biases.query, sizes.query_rows, parameters.query_bias);
  check_optional(operation, "key_bias", biases.key, sizes.key_rows, parameters.key_bias);
  check_optional(operation, "value_bias", biases.value, sizes.value_rows, parameters.value_bias);
  check_optional(operation, "output_bias", biases.output, sizes.model_width,
                 parameters.output_bias);
  check_optional(operation, "query_norm", norm, sizes.head_width, parameters.query_norm);
  check_optional(operation, "key_norm", norm, sizes.head_width, parameters.key_norm);
}

template <class T>
MultiHeadAttentionParameters<T> zero_parameters(const MultiHeadAttentionOptions& options) {
  const ModuleSizes sizes = checked_sizes(options);
  MultiHeadAttentionParameters<T> parameters{
      .query_weight = Tensor<T, 2>({sizes.query_rows, sizes.model_width}),
      .key_weight = Tensor<T, 2>({sizes.key_rows, sizes.key_input_width}),
      .value_weight = Tensor<T, 2>({sizes.value_rows, sizes.value_input_width}),
      .output_weight = Tensor<T, 2>({sizes.model_width, sizes.merged_width}),
      .query_bias = std::nullopt,
      .key_bias = std::nullopt,
      .value_bias = std::nullopt,
      .output_bias = std::nullopt,
      .query_norm = std::nullopt,
      .key_norm = std::nullopt};
  if (options.biases.query) parameters.query_bias.emplace(Extents<1>{sizes.query_rows});
  if (options.biases.key) parameters.key_bias.emplace(Extents<1>{sizes.key_rows});
  if (options.biases.value) parameters.value_bias.emplace(Extents<1>{sizes.value_rows});
  if (options.biases.output) parameters.output_bias.emplace(Extents<1>{sizes.model_width});
  if (options.qk_norm) {
    for (auto* norm : {&parameters.query_norm, &parameters.key_norm}) {
      norm->emplace(Extents<1>{sizes.head_width});
      std::fill_n((*norm)->data(), sizes.head_width, T{1});
    }
  }
  return parameters;
}

template void check_parameters(std::string_view, const MultiHeadAttentionOptions&,
                               const MultiHeadAttentionParameters<double>&);
template void check_parameters(std::string_view, const MultiHeadAttentionOptions&,
                               const MultiHeadAttentionParameters<float>&);
template MultiHeadAttentionParameters<double> zero_parameters(const MultiHeadAttentionOptions&);
template MultiHeadAttentionParameters<float> zero_parameters(const MultiHeadAttentionOptions&);

}  // namespace qkv
