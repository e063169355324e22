#include <fmt/format.h>

#include <cmath>
#include <random>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "lab/trace_source.h"

namespace qkv::lab {
namespace {

void expect_at_least(std::string_view option, Index value, Index least) {
  if (value >= least) return;
  throw std::invalid_argument(
      fmt::format("trace: --{}: expected {} or more, got {}", option, least, value));
}

/// Every argument is checked here, for a message that names the option, and before memory is taken.
TraceSizes check_sizes(const SizeOptions& options, double memory_limit) {
  expect_at_least("batch", options.batch, 0);
  expect_at_least("tokens", options.tokens, 0);
  expect_at_least("model", options.model_width, 1);
  expect_at_least("heads", options.heads, 1);
  if (options.keys) expect_at_least("keys", *options.keys, 0);
  if (options.kv_heads) expect_at_least("kv-heads", *options.kv_heads, 1);
  const Index kv_heads = options.kv_heads.value_or(options.heads);
  if (options.model_width % options.heads != 0) {
    throw std::invalid_argument(fmt::format(
        "trace: --heads: expected a divisor of the model width {}, got {}: every head gets D/H "
        "columns, and {} columns would be left over",
        options.model_width, options.heads, options.model_width % options.heads));
  }
  if (options.heads % kv_heads != 0) {
    throw std::invalid_argument(
        fmt::format("trace: --kv-heads: expected a divisor of the {} heads, got {}: query heads "
                    "share key/value heads in groups of equal size",
                    options.heads, kv_heads));
  }
  const Index head_width = options.model_width / options.heads;
  const TraceSizes sizes{
      {options.batch, options.heads, options.tokens, options.keys.value_or(options.tokens)},
      kv_heads,
      head_width,
      head_width,
      options.model_width};
  check_memory(sizes, memory_limit);
  return sizes;
}

/// Independent normal numbers from one seed.
class NormalNumbers {
 public:
  explicit NormalNumbers(std::uint64_t seed) : generator_(seed) {}

  template <int Rank>
  void fill(Tensor<double, Rank>& tensor, double deviation) {
    for (double& element : tensor.elements()) element = deviation * distribution_(generator_);
  }

 private:
  std::mt19937_64 generator_;
  std::normal_distribution<double> distribution_;
};

}  // namespace

TraceInput trace_sizes(const SizeOptions& options, double memory_limit) {
  const TraceSizes sizes = check_sizes(options, memory_limit);
  MultiHeadAttentionOptions module;
  module.model_width = options.model_width;
  module.heads = options.heads;
  module.kv_heads = sizes.kv_heads;
  module.scale = options.scale;
  auto parameters = zero_parameters<double>(module);
  NormalNumbers numbers(options.seed);
  // Keeps the variance of the projections at that of the input.
  const double deviation = 1 / std::sqrt(static_cast<double>(options.model_width));
  for (Tensor<double, 2>* weight : {&parameters.query_weight, &parameters.key_weight,
                                    &parameters.value_weight, &parameters.output_weight}) {
    numbers.fill(*weight, deviation);
  }
  Tensor<double, 3> input({options.batch, options.tokens, options.model_width});
  numbers.fill(input, 1);
  std::optional<Tensor<double, 3>> key_input;
  if (options.keys) {
    key_input.emplace(Extents<3>{options.batch, *options.keys, options.model_width});
    numbers.fill(*key_input, 1);
  }

  TraceInput result;
  result.source = fmt::format("normal random numbers (seed {})", options.seed);
  result.call = ModuleCall{
      {module, std::move(parameters)}, std::move(input), std::move(key_input), std::nullopt};
  return result;
}

}  // namespace qkv::lab
