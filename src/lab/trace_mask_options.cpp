#include <fmt/format.h>

#include <stdexcept>
#include <string_view>
#include <utility>

#include "lab/trace_source.h"

namespace qkv::lab {
namespace {

struct Tokens {
  Index batch = 0;
  Index queries = 0;
  Index keys = 0;
  bool self_attention = true;
};

Tokens tokens_of(const HeadTensors& call) {
  const Index queries = call.query.shape(2);
  const Index keys = call.key.shape(2);
  return {call.query.shape(0), queries, keys, queries == keys};
}

Tokens tokens_of(const ModuleCall& call) {
  const Tensor<double, 3>& keys = call.key_input ? *call.key_input : call.input;
  return {call.input.shape(0), call.input.shape(1), keys.shape(1), !call.key_input};
}

/// In terms of the command line, where the library would speak of its own interface.
void expect_corner(std::string_view operation, std::string_view option, std::string_view how,
                   const std::optional<Corner>& corner, Index queries, Index keys) {
  if (corner || queries == keys) return;
  throw std::invalid_argument(
      fmt::format("{}: {}: expected a corner for the diagonal, top-left (query 0 at key 0) or "
                  "bottom-right (the last query at the last key), as T and S differ ({}), got none "
                  "with T={}, S={}",
                  operation, option, how, queries, keys));
}

/// Nothing where lengths do not fit the batch: applying the mask says so later.
void mark_padded_queries(TraceInput& input, const Tokens& tokens,
                         const std::vector<Index>& lengths) {
  const bool one_for_all = lengths.size() == 1;
  if (!tokens.self_attention ||
      (!one_for_all && lengths.size() != static_cast<std::size_t>(tokens.batch))) {
    return;
  }
  if (!input.padded_queries) input.padded_queries.emplace(Extents<2>{tokens.batch, tokens.queries});
  for (Index b = 0; b < tokens.batch; ++b) {
    const Index length = lengths[one_for_all ? 0 : static_cast<std::size_t>(b)];
    for (Index t = length; t < tokens.queries; ++t) (*input.padded_queries)(b, t) = true;
  }
}

}  // namespace

Mask make_mask(std::string_view operation, const MaskOptions& options, Index queries, Index keys) {
  Mask mask;
  if (options.causal || !options.prefix_lengths.empty()) {
    expect_corner(operation, "--causal", "--causal=CORNER", options.corner, queries, keys);
  }
  if (!options.prefix_lengths.empty()) {
    mask = mask & Mask::prefix_causal(options.prefix_lengths, options.corner);
  } else if (options.causal) {
    mask = mask & Mask::causal(options.corner);
  }
  if (options.window) {
    expect_corner(operation, "--window", "--window N,CORNER", options.window->corner, queries,
                  keys);
    mask = mask & Mask::sliding_window(*options.window);
  }
  if (!options.lengths.empty()) mask = mask & Mask::key_lengths(options.lengths);
  return mask;
}

void add_mask(TraceInput& input, const MaskOptions& options) {
  const Tokens tokens = std::visit([](const auto& call) { return tokens_of(call); }, input.call);
  input.mask = input.mask & make_mask("trace", options, tokens.queries, tokens.keys);
  if (!options.lengths.empty()) mark_padded_queries(input, tokens, options.lengths);
}

}  // namespace qkv::lab
