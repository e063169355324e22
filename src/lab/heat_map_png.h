// Heat maps as a picture.
#pragma once

#include <string>
#include <vector>

#include "lab/heat_map.h"

namespace qkv::lab {

struct PictureOptions {
  Index sample = 0;
  std::vector<Index> heads = {};
  Binning binning = Binning::Max;
};

/// A PNG with a panel a head, one colour scale for all of them. Hidden cells are grey and hatched.
/// The file appears whole or not at all. Throws FileError where it cannot be written,
/// std::invalid_argument where so many heads were asked for that no picture holds them.
void write_heat_map_png(const std::string& path, const Trace& trace, const PictureOptions& options);

}  // namespace qkv::lab
