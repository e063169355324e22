// The .npz format: a zip archive, stored or deflated, whose members NAME.npy are the tensors.
#pragma once

#include <string>

#include "io/file_map.h"
#include "qkv/io.h"

namespace qkv {

/// Unpacks every member. A member's memory grows with what is unpacked of it, whatever the archive
/// declares, and never beyond what its own .npy header declares. Throws FileError.
TensorFile read_npz(const FileBytes& file, const std::string& path);

/// Writes a stored archive over `destination`; `path` is for the messages of the FileError. Throws
/// std::invalid_argument where a name cannot be that of a member or NumPy has no such dtype.
void write_npz(const TensorFile& file, const std::string& destination, const std::string& path);

/// True for what a member may be called before its ".npy": parts separated by '/', none of them empty,
/// "." or "..", without backslashes and control characters.
bool is_npz_name(std::string_view name);

}  // namespace qkv
