// An experiment in a terminal: its tables, its effects with a mark, and what one should have seen.
#pragma once

#include <string>

#include "lab/experiment.h"
#include "lab/text_style.h"

namespace qkv::lab {

/// Charts and heat maps are for the page. Tables wider than the style go on below, their first column repeated.
std::string experiment_text(const Experiment& experiment, const TextStyle& style);

}  // namespace qkv::lab
