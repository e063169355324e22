// What is known of a dump that nothing explains: sentences, each of them tested on the rows that it speaks of.
#pragma once

#include <string>
#include <vector>

#include "check/variant_rows.h"

namespace qkv {

/// `rms` is how far each of `rows`, every one that is read, is from what was meant, in units.
std::vector<std::string> facts_of(const Evaluator& evaluator, const std::vector<OutputRow>& rows,
                                  const std::vector<double>& rms);

}  // namespace qkv
