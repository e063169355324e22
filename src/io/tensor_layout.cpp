#include "io/tensor_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace qkv {

std::optional<std::uint64_t> byte_count(DType dtype, std::span<const Index> shape) {
  constexpr auto limit = static_cast<std::uint64_t>(std::numeric_limits<Index>::max());
  std::uint64_t bytes = size_of(dtype);
  bool empty = false;
  for (const Index extent : shape) {
    empty = empty || extent == 0;
    const auto factor = static_cast<std::uint64_t>(std::max<Index>(extent, 1));
    if (factor > limit / bytes) return std::nullopt;
    bytes *= factor;
  }
  return empty ? 0 : bytes;
}

std::optional<std::size_t> find_bad_bool(std::span<const std::byte> bytes) {
  const auto bad = std::find_if(bytes.begin(), bytes.end(),
                                [](std::byte value) { return value > std::byte{1}; });
  if (bad == bytes.end()) return std::nullopt;
  return static_cast<std::size_t>(bad - bytes.begin());
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t longest = 80;
  std::string result = "\"";
  for (const char character : text.substr(0, longest)) {
    if (character == '"' || character == '\\') {
      result += '\\';
      result += character;
    } else if (character >= ' ' && character <= '~') {
      result += character;
    } else {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(character));
    }
  }
  result += text.size() > longest ? "…\"" : "\"";
  return result;
}

}  // namespace qkv
