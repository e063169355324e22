#include "explain/explained_model.h"

#include <fmt/format.h>

#include <stdexcept>

namespace qkv::explain {

void expect_embeddings(const Tensor<double, 3>& embeddings, const ModelSizes& sizes) {
  const Extents<3> shape{embeddings.shape(0), sizes.tokens, sizes.width};
  if (embeddings.shape() == shape) return;
  throw std::invalid_argument(fmt::format("explain: embeddings: expected {}, got {}",
                                          to_string(shape), to_string(embeddings.shape())));
}

void expect_layers(Index layers, const ModelSizes& sizes) {
  if (layers >= 1 && layers <= sizes.layers) return;
  throw std::invalid_argument(
      fmt::format("explain: layers: expected 1 to {}, got {}", sizes.layers, layers));
}

std::vector<Index> candidates(const ExplainedText& text) {
  std::vector<Index> tokens;
  for (std::size_t t = 0; t < text.tokens.size(); ++t) {
    if (!text.special[t] && text.readout[t] < 1) tokens.push_back(static_cast<Index>(t));
  }
  return tokens;
}

}  // namespace qkv::explain
