// One query, worked out step by step, in text.
#pragma once

#include <string>
#include <vector>

#include "lab/text_style.h"
#include "lab/trace_walk.h"

namespace qkv::lab {

std::vector<std::string> walk_text(const Walk& walk, const TextStyle& style);

}  // namespace qkv::lab
