#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "io/npy.h"
#include "io/tensor_layout.h"
#include "qkv/error.h"

namespace qkv {
namespace {

/// The elements in row-major order and little-endian.
std::shared_ptr<std::vector<std::byte>> rearranged(const NpyHeader& header,
                                                   std::span<const std::byte> data) {
  auto result = std::make_shared<std::vector<std::byte>>(data.size());
  const std::vector<Index>& shape = header.shape;
  std::vector<Index> strides(shape.size());
  if (header.fortran_order) {
    Index stride = 1;
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      strides[axis] = stride;
      stride *= shape[axis];
    }
  } else {
    row_major_strides(shape, strides);
  }
  const std::size_t width = size_of(header.dtype);
  std::byte* next = result->data();
  detail::for_each_offset(shape, strides, [&](std::ptrdiff_t offset) {
    const std::byte* const element = data.data() + static_cast<std::size_t>(offset) * width;
    if (header.big_endian) {
      std::reverse_copy(element, element + width, next);
    } else {
      std::copy_n(element, width, next);
    }
    next += width;
  });
  return result;
}

}  // namespace

StoredTensor read_npy(const FileBytes& file, const std::string& path) {
  const std::size_t size = file.bytes.size();
  const std::uint64_t data_offset =
      npy_data_offset(file.bytes.first(std::min(size, kNpyPrefixBytes)), path);
  if (data_offset > size) {
    throw FileError(
        path, fmt::format("header: expected {} bytes before the data, got {}", data_offset, size),
        size);
  }
  NpyHeader header = parse_npy_header(file.bytes.first(data_offset), path);
  const auto data = file.bytes.subspan(data_offset);
  if (data.size() != header.data_bytes) {
    throw FileError(path,
                    fmt::format("data: expected {} bytes for {} {}, got {}", header.data_bytes,
                                name_of(header.dtype), to_string(header.shape), data.size()),
                    data_offset + std::min<std::uint64_t>(data.size(), header.data_bytes));
  }
  if (header.dtype == DType::Bool) {
    if (const std::optional<std::size_t> bad = find_bad_bool(data)) {
      throw FileError(path,
                      fmt::format("data: expected 0 or 1 in a bool tensor, got {}",
                                  static_cast<int>(data[*bad])),
                      data_offset + *bad);
    }
  }
  const bool as_it_is = (!header.fortran_order || header.shape.size() < 2) && !header.big_endian;
  if (data.empty() || as_it_is) {
    return StoredTensor(header.dtype, std::move(header.shape), data, file.owner);
  }
  const auto owned = rearranged(header, data);
  return StoredTensor(header.dtype, std::move(header.shape), *owned, owned);
}

}  // namespace qkv
