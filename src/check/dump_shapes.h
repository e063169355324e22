// What docs/dump.md says of tensors: which go together, and their shapes.
#pragma once

#include <vector>

#include "check/dump_reading.h"
#include "check/dump_sizes.h"
#include "qkv/io.h"

namespace qkv {

/// Throws where a tensor is there without those that it needs, or an obligatory one is not.
void check_dump_has_tensors(const TensorFile& file);

/// The shapes of the tensors of this file that tell sizes or have to fit them, read in one way.
std::vector<SizedTensor> shapes_of_dump(const TensorFile& file, const DumpReading& reading);

}  // namespace qkv
