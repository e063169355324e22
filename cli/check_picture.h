// Where errors are, drawn in a terminal.
#pragma once

#include <string>
#include <vector>

#include "check/verdict.h"
#include "lab/text_style.h"

namespace qkv::cli {

/// Heads by rows, or columns by rows where heads are merged, with a legend.
std::vector<std::string> error_picture(const TensorVerdict& tensor, const lab::TextStyle& style);

}  // namespace qkv::cli
