#include "explain/explained_model.h"

namespace qkv::explain {

std::vector<Index> candidates(const ExplainedText& text) {
  std::vector<Index> tokens;
  for (std::size_t t = 0; t < text.tokens.size(); ++t) {
    if (!text.special[t] && text.readout[t] < 1) tokens.push_back(static_cast<Index>(t));
  }
  return tokens;
}

}  // namespace qkv::explain
