// Which format some bytes are in.
#pragma once

#include <string>

#include "io/file_map.h"
#include "qkv/io.h"

namespace qkv {

/// read_tensors for bytes that are in memory; the tensors may point into them.
TensorFile read_tensors(const FileBytes& file, const std::string& path);

}  // namespace qkv
