// Two causes at once.
#pragma once

#include <functional>
#include <vector>

#include "check/explanation.h"

namespace qkv {

/// Pairs of hypotheses that come near the dump on the first rows.
std::vector<Explanation> promising_pairs(const Catalogue& catalogue, const Screen& few,
                                         const std::function<void(double)>& progress);

/// Pairs of one of `nearest`, the likeliest first, and a hypothesis with a free parameter.
std::vector<Explanation> fitted_pairs(const Catalogue& catalogue,
                                      const std::vector<Hypothesis>& nearest, const Screen& few,
                                      const std::function<void(double)>& progress);

}  // namespace qkv
