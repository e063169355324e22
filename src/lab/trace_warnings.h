// What usually goes wrong with attention, looked for in a trace.
#pragma once

#include <vector>

#include "lab/trace.h"

namespace qkv::lab {

/// `trace` holds everything but its warnings; `recorded` is what the model computed.
std::vector<Warning> find_warnings(const Trace& trace, const Recorded& recorded);

}  // namespace qkv::lab
