#include <cmath>

#include "qkv/attention.h"

namespace qkv {

std::vector<double> standard_alibi_slopes(Index heads) {
  std::vector<double> slopes;
  if (heads <= 0) return slopes;
  Index power = 1;
  while (power * 2 <= heads) power *= 2;
  // Slopes for `power` heads, then every second slope of 2·power heads for those that remain.
  for (Index i = 1; i <= power; ++i) {
    slopes.push_back(std::exp2(-8.0 * static_cast<double>(i) / static_cast<double>(power)));
  }
  for (Index i = 1; static_cast<Index>(slopes.size()) < heads; i += 2) {
    slopes.push_back(std::exp2(-4.0 * static_cast<double>(i) / static_cast<double>(power)));
  }
  return slopes;
}

}  // namespace qkv
