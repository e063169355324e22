// Heat maps in a terminal: shades, or blocks of colour.
#pragma once

#include <string>
#include <vector>

#include "lab/heat_map.h"
#include "lab/text_style.h"

namespace qkv::lab {

struct HeatTextOptions {
  Index sample = 0;
  std::vector<Index> heads = {};
  Binning binning = Binning::Max;
};

/// As many heads side by side as fit, with a legend. Small maps (8 by 8) hold their numbers too.
std::vector<std::string> heat_map_text(const Trace& trace, const HeatTextOptions& options,
                                       const TextStyle& style);

}  // namespace qkv::lab
