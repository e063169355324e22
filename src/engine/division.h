// How work is divided: what the plans of all calls share.
#pragma once

#include <algorithm>

#include "qkv/tensor.h"

namespace qkv::engine {

constexpr Index divide_up(Index a, Index b) { return (a + b - 1) / b; }

/// As many of the threads as this many multiply-adds are worth, at least 1.
inline Index useful_threads(double multiply_adds, Index threads) {
  constexpr double kWorthAThread = 1 << 18;  // below, a second thread costs more than it brings
  return static_cast<Index>(
      std::min(static_cast<double>(threads), multiply_adds / kWorthAThread + 1));
}

}  // namespace qkv::engine
