// Hypotheses that were tried on a dump, alone or two together, and which of them explain it.
#pragma once

#include <vector>

#include "check/hypotheses.h"
#include "check/screening.h"

namespace qkv {

struct Explanation {
  std::vector<Hypothesis> parts;  ///< one, or a pair
  Trial trial;

  std::vector<std::string> ids() const;
  std::string text() const;
  int rank() const;
  bool fitted() const;
  std::uint32_t touches() const;
};

/// Those that explain the dump as well as the best of them does: equal computations, as far as the rows can tell. Sorted,
/// the likeliest first.
std::vector<Explanation> equal_best(const Screen& screen, std::vector<Explanation> accepted);

/// Of equal explanations one a class, and no pair or fitted constant where something simpler does as well.
std::vector<Explanation> one_a_class(std::vector<Explanation> equal);

/// Whether two computations are one, as far as rounding lets the dump tell.
bool indistinguishable(const Contest& contest, DType ran_in);

Cause cause_of(const Explanation& explanation);

}  // namespace qkv
