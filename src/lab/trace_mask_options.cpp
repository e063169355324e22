#include <stdexcept>
#include <utility>

#include "lab/trace_source.h"

namespace qkv::lab {
namespace {

struct Tokens {
  Index batch = 0;
  Index queries = 0;
  bool self_attention = true;
};

Tokens tokens_of(const HeadTensors& call) {
  return {call.query.shape(0), call.query.shape(2), call.query.shape(2) == call.key.shape(2)};
}

Tokens tokens_of(const ModuleCall& call) {
  return {call.input.shape(0), call.input.shape(1), !call.key_input};
}

/// Nothing where lengths do not fit the batch: applying the mask says so later.
void mark_padded_queries(TraceInput& input, const std::vector<Index>& lengths) {
  const Tokens tokens = std::visit([](const auto& call) { return tokens_of(call); }, input.call);
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

void add_mask(TraceInput& input, const MaskOptions& options) {
  Mask mask;
  if (!options.prefix_lengths.empty()) {
    mask = mask & Mask::prefix_causal(options.prefix_lengths, options.corner);
  } else if (options.causal) {
    mask = mask & Mask::causal(options.corner);
  }
  if (options.window) mask = mask & Mask::sliding_window(*options.window);
  if (!options.lengths.empty()) {
    mask = mask & Mask::key_lengths(options.lengths);
    mark_padded_queries(input, options.lengths);
  }
  input.mask = input.mask & mask;
}

}  // namespace qkv::lab
