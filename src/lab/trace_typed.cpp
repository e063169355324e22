#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "lab/trace_source.h"

namespace qkv::lab {
namespace {

constexpr std::string_view kBetweenNumbers = " \t,\n\r";

[[noreturn]] void fail(const std::string& name, const std::string& expected,
                       const std::string& got) {
  throw std::invalid_argument(fmt::format("trace: {}: expected {}, got {}", name, expected, got));
}

std::vector<double> parse_row(const std::string& name, std::string_view text) {
  std::vector<double> row;
  while (true) {
    const std::size_t begin = text.find_first_not_of(kBetweenNumbers);
    if (begin == std::string_view::npos) return row;
    text.remove_prefix(begin);
    const std::string_view word = text.substr(0, text.find_first_of(kBetweenNumbers));
    double number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error != std::errc{} || end != word.data() + word.size() || !std::isfinite(number)) {
      fail(name, "finite numbers such as 1, -0.5 or 2e-3", fmt::format("\"{}\"", word));
    }
    row.push_back(number);
    text.remove_prefix(word.size());
  }
}

/// [T,H·D] → [1,H,T,D].
Tensor<double, 4> split_typed(const std::string& name, const Tensor<double, 2>& matrix,
                              Index heads) {
  const Index tokens = matrix.shape(0);
  const Index width = matrix.shape(1);
  if (width % heads != 0) {
    fail(name, fmt::format("columns that {} heads divide", heads), std::to_string(width));
  }
  return contiguous_copy(
      split_heads(TensorView<const double, 3>(matrix.data(), {1, tokens, width}), heads));
}

void make_identity(Tensor<double, 2>& weight) {
  for (Index i = 0; i < weight.shape(0); ++i) weight(i, i) = 1;
}

/// x goes through projections that change nothing, so that all six shapes are there.
ModuleCall identity_call(const Tensor<double, 2>& matrix, const TypedOptions& options) {
  const Index width = matrix.shape(1);
  if (options.kv_heads.value_or(options.heads) != options.heads) {
    fail("--kv-heads", "--k and --v with it", "only --type, whose tokens are as wide as a query");
  }
  if (width % options.heads != 0) {
    fail("--heads", fmt::format("a divisor of the {} numbers of a token", width),
         std::to_string(options.heads));
  }
  MultiHeadAttentionOptions module;
  module.model_width = width;
  module.heads = options.heads;
  module.scale = options.scale;
  auto parameters = zero_parameters<double>(module);
  for (Tensor<double, 2>* weight : {&parameters.query_weight, &parameters.key_weight,
                                    &parameters.value_weight, &parameters.output_weight}) {
    make_identity(*weight);
  }
  Tensor<double, 3> input({1, matrix.shape(0), width});
  std::copy_n(matrix.data(), matrix.elements().size(), input.data());
  return {{module, std::move(parameters)}, std::move(input), std::nullopt, std::nullopt};
}

HeadTensors separate_call(const TypedOptions& options) {
  const auto matrix = [&](const std::string& name, const std::optional<std::string>& text) {
    if (text) return parse_matrix(name, *text);
    if (!options.input) fail(name, "a matrix (or --type, which stands in for it)", "nothing");
    return parse_matrix("--type", *options.input);
  };
  const Index kv_heads = options.kv_heads.value_or(options.heads);
  HeadTensors call;
  call.query = split_typed("--q", matrix("--q", options.query), options.heads);
  call.key = split_typed("--k", matrix("--k", options.key), kv_heads);
  call.value = split_typed("--v", matrix("--v", options.value), kv_heads);
  call.scale = options.scale;
  return call;
}

}  // namespace

Tensor<double, 2> parse_matrix(const std::string& name, std::string_view text) {
  std::vector<double> elements;
  Index rows = 0;
  Index width = 0;
  while (true) {
    const std::size_t end = text.find(';');
    const std::vector<double> row = parse_row(name, text.substr(0, end));
    const bool last = end == std::string_view::npos;
    if (row.empty() && !(last && rows > 0)) {
      fail(name, "rows of numbers, as in \"1 0; 0 1\"", fmt::format("an empty row {}", rows));
    }
    if (!row.empty()) {
      if (rows == 0) width = static_cast<Index>(row.size());
      if (static_cast<Index>(row.size()) != width) {
        fail(name, fmt::format("{} numbers in every row, as in row 0", width),
             fmt::format("{} in row {}", row.size(), rows));
      }
      elements.insert(elements.end(), row.begin(), row.end());
      ++rows;
    }
    if (last) break;
    text.remove_prefix(end + 1);
  }
  if (rows > kMostTypedTokens) {
    fail(name, fmt::format("at most {} tokens (rows)", kMostTypedTokens), std::to_string(rows));
  }
  Tensor<double, 2> matrix({rows, width});
  std::copy(elements.begin(), elements.end(), matrix.data());
  return matrix;
}

TraceInput trace_typed(const TypedOptions& options) {
  if (options.heads < 1) fail("--heads", "1 or more", std::to_string(options.heads));
  if (options.kv_heads && *options.kv_heads < 1) {
    fail("--kv-heads", "1 or more", std::to_string(*options.kv_heads));
  }
  TraceInput input;
  if (options.query || options.key || options.value) {
    input.source = "typed matrices";
    input.call = separate_call(options);
  } else if (options.input) {
    input.source = "typed tokens, Q = K = V = x";
    input.call = identity_call(parse_matrix("--type", *options.input), options);
  } else {
    fail("--type", "a matrix with one row a token", "nothing");
  }
  return input;
}

}  // namespace qkv::lab
