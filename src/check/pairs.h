// Two causes at once.
#pragma once

#include <functional>
#include <vector>

#include "check/explanation.h"

namespace qkv {

/// Pairs of hypotheses that come near the dump on the first rows; what was tried alone is in `singles`.
std::vector<Explanation> promising_pairs(const Catalogue& catalogue, const Screen& few,
                                         const Screen& more,
                                         const std::vector<Explanation>& singles,
                                         const std::function<void(double)>& progress);

}  // namespace qkv
