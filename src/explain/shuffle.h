// Numbers in random order: a layer whose weights have their values and no structure.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "model/random.h"

namespace qkv::explain {

/// Source: Durstenfeld (1964).
inline void shuffle(std::span<double> elements, Random& random) {
  for (std::size_t i = elements.size(); i > 1; --i) {
    std::swap(elements[i - 1],
              elements[static_cast<std::size_t>(random.below(static_cast<Index>(i)))]);
  }
}

}  // namespace qkv::explain
