// What the readers of every format check of a tensor, and how their messages show what a file holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "qkv/dtype.h"
#include "qkv/tensor.h"

namespace qkv {

/// No tensor has more axes than NumPy allows; a file that claims more is lying.
inline constexpr std::size_t kMaxRank = 64;

/// Bytes of a tensor, or nothing where they, or a stride of the shape, would overflow. Extents are >= 0.
std::optional<std::uint64_t> byte_count(DType dtype, std::span<const Index> shape);

/// Position of the first byte that is neither 0 nor 1.
std::optional<std::size_t> find_bad_bool(std::span<const std::byte> bytes);

/// The text in double quotes, control characters and bytes that are not ASCII escaped, cut where it is
/// long: a file decides what is in a name, but not what a message does to a terminal.
std::string in_quotes(std::string_view text);

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace qkv
