#include "qkv/error.h"

#include <fmt/format.h>

namespace qkv {

FileError::FileError(const std::string& path, const std::string& problem,
                     std::optional<std::uint64_t> offset)
    : std::runtime_error(offset ? fmt::format("{}: at byte {}: {}", path, *offset, problem)
                                : fmt::format("{}: {}", path, problem)),
      path_(path),
      offset_(offset) {}

}  // namespace qkv
