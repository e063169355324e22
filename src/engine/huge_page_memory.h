// Memory in huge pages of the system: what is read from end to end is read half as fast again with few misses of the page tables.
#pragma once

#include <cstddef>
#include <new>

namespace qkv::engine {

/// The system's huge pages are as large on x86-64, and on AArch64 with pages of 4 KiB.
inline constexpr std::size_t kHugePage = std::size_t{2} << 20U;

/// Uninitialized, at a multiple of 64 bytes; in huge pages where it fills one and the system grants them.
class HugePageMemory {
 public:
  /// Throws std::bad_alloc.
  explicit HugePageMemory(std::size_t bytes);
  HugePageMemory(const HugePageMemory&) = delete;
  HugePageMemory& operator=(const HugePageMemory&) = delete;
  ~HugePageMemory();

  std::byte* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::size_t bytes_;
  std::align_val_t alignment_;
  std::byte* data_;
};

}  // namespace qkv::engine
