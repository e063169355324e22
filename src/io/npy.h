// The .npy format: magic "\x93NUMPY", two version bytes, the header's length (2 bytes in version 1, 4 in
// 2 and 3), a header that is a Python dict of descr, fortran_order and shape, then the data.
// Specification: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/file_map.h"
#include "qkv/io.h"

namespace qkv {

inline constexpr std::string_view kNpyMagic = "\x93NUMPY";
/// Magic, version and the longer form of the header's length.
inline constexpr std::size_t kNpyPrefixBytes = 12;

/// How the data lie in the file.
struct NpyHeader {
  DType dtype = DType::Float64;
  bool big_endian = false;
  bool fortran_order = false;
  std::vector<Index> shape;
  std::uint64_t data_bytes = 0;
};

/// Bytes before the data, according to the first kNpyPrefixBytes (fewer where the file is shorter).
/// Throws FileError.
std::uint64_t npy_data_offset(std::span<const std::byte> prefix, const std::string& path);

/// `bytes` are those before the data. Throws FileError.
NpyHeader parse_npy_header(std::span<const std::byte> bytes, const std::string& path);

/// The tensor points into `file` where its order and its byte order are ours. Throws FileError.
StoredTensor read_npy(const FileBytes& file, const std::string& path);

/// Version 1.0, all bytes before the data, which begin at a multiple of 64. Throws
/// std::invalid_argument where NumPy has no such dtype (bfloat16). `name` is for the message.
std::string npy_header(const StoredTensor& tensor, const std::string& name);

}  // namespace qkv
