// The cases that the engine is held to: the shared table's features on shapes around every edge of its tiles.
#pragma once

#include <vector>

#include "tests/cases/attention_cases.h"

namespace qkv::cases {

/// Every feature alone on every shape of edge_shapes(), and every pair of features on a few: without a sanitizer.
std::vector<AttentionCase> engine_cases();

}  // namespace qkv::cases
