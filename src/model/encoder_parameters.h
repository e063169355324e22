// The parameters of an encoder with their names in files and the shapes that the options give them.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>

#include "model/encoder.h"

namespace qkv {

namespace detail {

/// What the options have is there: made where it can be.
template <class Part>
Part& present(std::optional<Part>& part) {
  if (!part) part.emplace();
  return *part;
}
template <class Part>
const Part& present(const std::optional<Part>& part) {
  return part.value();
}

}  // namespace detail

/// Calls visit(name, tensor, shape) for every parameter, in one order. Parameters is EncoderParameters<T>, const or not, with as
/// many blocks as the options have layers.
template <class Parameters, class Visit>
void visit_parameters(const EncoderOptions& options, Parameters& parameters, Visit visit) {
  using detail::present;
  const Index width = options.model_width;
  const auto norm = [&](const std::string& name, auto& p) {
    visit(name + ".weight", p.weight, Extents<1>{width});
    visit(name + ".bias", present(p.bias), Extents<1>{width});
  };
  const auto linear = [&](const std::string& name, auto& weight, auto& bias, Index in, Index out) {
    visit(name + ".weight", weight, Extents<2>{out, in});
    visit(name + ".bias", bias, Extents<1>{out});
  };
  visit("embeddings.word_embeddings.weight", parameters.token_embedding,
        Extents<2>{options.vocabulary, width});
  visit("embeddings.position_embeddings.weight", parameters.position_embedding,
        Extents<2>{options.context, width});
  visit("embeddings.token_type_embeddings.weight", parameters.type_embedding,
        Extents<2>{options.token_types, width});
  norm("embeddings.LayerNorm", parameters.embedding_norm);
  for (std::size_t i = 0; i < parameters.blocks.size(); ++i) {
    const std::string layer = fmt::format("encoder.layer.{}.", i);
    auto& block = parameters.blocks[i];
    auto& p = block.attention.projections;
    linear(layer + "attention.self.query", p.query_weight, present(p.query_bias), width, width);
    linear(layer + "attention.self.key", p.key_weight, present(p.key_bias), width, width);
    linear(layer + "attention.self.value", p.value_weight, present(p.value_bias), width, width);
    linear(layer + "attention.output.dense", p.output_weight, present(p.output_bias), width, width);
    norm(layer + "attention.output.LayerNorm", block.attention_norm);
    auto& mlp = present(block.mlp);
    const Index hidden = options.mlp_width;
    linear(layer + "intermediate.dense", mlp.in_weight, mlp.in_bias, width, hidden);
    linear(layer + "output.dense", mlp.out_weight, mlp.out_bias, hidden, width);
    norm(layer + "output.LayerNorm", mlp.norm);
  }
}

/// Throws std::invalid_argument where options do not fit together.
void check_options(const EncoderOptions& options);

}  // namespace qkv
