// What the library throws. Wrong arguments are std::invalid_argument with a message of the form
// "operation: argument: expected …, got …"; memory that cannot be had is std::bad_alloc; a file that
// cannot be read, written or believed is FileError. The library never prints and never aborts.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

namespace qkv {

/// A file could not be opened, is malformed, or could not be written.
/// what() is "PATH: at byte OFFSET: what was expected and what came" (no offset where none applies).
class FileError : public std::runtime_error {
 public:
  FileError(const std::string& path, const std::string& problem,
            std::optional<std::uint64_t> offset = std::nullopt);

  const std::string& path() const noexcept { return path_; }
  /// Byte offset in the file of the first thing that is wrong, where there is one.
  std::optional<std::uint64_t> offset() const noexcept { return offset_; }

 private:
  std::string path_;
  std::optional<std::uint64_t> offset_;
};

}  // namespace qkv
