// "Not a bug": what looks odd in a dump and is right, as far as the dump itself shows it.
#pragma once

#include <string>
#include <vector>

#include "check/variant_rows.h"

namespace qkv {

/// `named` are the classes that were found.
std::vector<std::string> remarks_of(const Evaluator& evaluator,
                                    const std::vector<std::string>& named);

}  // namespace qkv
