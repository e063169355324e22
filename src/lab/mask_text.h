// The additive mask in text, as one would write it down.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lab/text_style.h"
#include "lab/trace.h"

namespace qkv::lab {

/// Lines such as "[[0, -∞]," and " [0,  0]]" of a matrix that may hold 0, −∞ and other numbers.
/// From the middle of a large one rows and columns are left out, "…" in their place.
std::vector<std::string> draw_matrix(Index rows, Index columns,
                                     const std::function<double(Index, Index)>& value);

/// "stride 0 on H and T", or "no axis repeats".
std::string describe_repeats(const MaskTrace& mask);

/// Rule by rule, then all of them together where there are several: shape, strides, drawing.
std::vector<std::string> mask_text(const Trace& trace, Index sample, Index head,
                                   const TextStyle& style);

}  // namespace qkv::lab
