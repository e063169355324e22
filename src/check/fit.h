// The value of a free parameter that brings a hypothesis nearest to a dump.
#pragma once

#include "check/hypotheses.h"
#include "check/screening.h"

namespace qkv {

/// `coarsely` tries a few values only, and refines the best. The hypothesis with its parameter fixed at the best value, on top of `base`. Nothing where no value comes near.
std::optional<Hypothesis> fit(const Hypothesis& hypothesis, const Variant& base, const Screen& few,
                              const Screen& more, bool coarsely = false);

}  // namespace qkv
