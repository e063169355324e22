// The safetensors format: 8 bytes of header length N (little-endian), N bytes of JSON, then the data.
// The JSON maps each tensor's name to its dtype, shape and byte range in the data, and "__metadata__" to
// texts. Specification: https://github.com/huggingface/safetensors#format
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/file_map.h"
#include "qkv/io.h"

namespace qkv {

inline constexpr std::size_t kSafetensorsLengthBytes = 8;
/// The reference implementation's limit.
inline constexpr std::uint64_t kSafetensorsMaxHeader = 100'000'000;
inline constexpr std::string_view kSafetensorsMetadata = "__metadata__";

/// One tensor as the header describes it, with the places in the file where it does.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::Float64;
  std::vector<Index> shape;
  std::uint64_t begin = 0;  ///< in the data
  std::uint64_t end = 0;
  std::uint64_t name_offset = 0;   ///< in the file
  std::uint64_t shape_offset = 0;  ///< of the list's values
  std::uint64_t range_offset = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
};

/// "F32" for Float32.
std::string_view safetensors_name(DType dtype);

/// Parses the JSON, which lies in the file after the header length. Checks its form and each tensor's
/// own values, not how the tensors lie in the data. Throws FileError.
SafetensorsHeader parse_safetensors_header(std::string_view json, const std::string& path);

/// The tensors point into `file`. Throws FileError.
TensorFile read_safetensors(const FileBytes& file, const std::string& path);

/// The header of `file`, length included and padded to 8 bytes, and the tensors in the order in which
/// their bytes follow it, without gaps: widest elements first, so that each is aligned; then by name.
/// Throws std::invalid_argument where a name or metadata is not UTF-8 or the header grows too long.
struct SafetensorsLayout {
  std::string header;
  std::vector<const StoredTensor*> tensors;
};
SafetensorsLayout lay_out_safetensors(const TensorFile& file);

}  // namespace qkv
