// The names that a dump may use, and how its errors begin.
#pragma once

#include <string>
#include <string_view>

#include "qkv/io.h"

namespace qkv {

/// The tensor that may hold the metadata.
inline constexpr std::string_view kDumpMetadataTensor = "metadata";

/// Throws std::invalid_argument "dump: name: problem". A name that a file gave is cut and escaped.
[[noreturn]] void fail_dump(std::string_view name, std::string_view problem);

/// Throws where the file has a tensor that docs/dump.md does not list, and suggests the nearest that it does.
void check_dump_tensor_names(const TensorFile& file);

/// The same for a key of the metadata.
void check_dump_key(std::string_view key);

}  // namespace qkv
