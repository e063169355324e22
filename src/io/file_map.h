// A whole file as bytes in memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace qkv {

/// Bytes of a file and what keeps them alive. The readers take this instead of a path, so that they can
/// be run on bytes that never were a file.
struct FileBytes {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;
};

/// Maps a regular file read-only; an empty file gives no bytes. Throws FileError where the path is
/// missing, cannot be read, or is a directory, pipe or device (none of which is waited for).
FileBytes map_file(const std::string& path);

}  // namespace qkv
