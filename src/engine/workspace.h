// Memory for one call, cut from a workspace that calls reuse.
#pragma once

#include <cstddef>
#include <initializer_list>

#include "qkv/engine.h"

namespace qkv::engine {

/// Every piece begins at a multiple of this: a cache line and the widest vector.
inline constexpr std::size_t kAlignment = 64;

/// Bytes of `count` elements, rounded up to whole lines. Throws std::bad_alloc where they overflow.
std::size_t aligned_bytes(std::size_t count, std::size_t element_size);

/// The product of sizes. Throws std::bad_alloc where it overflows.
std::size_t product(std::initializer_list<Index> sizes);

/// Lays out pieces one after the other: first their sizes are added, then, on the memory, they are taken in the
/// same order.
class Layout {
 public:
  /// Where the piece begins, in bytes from the start.
  template <class T>
  std::size_t add(std::size_t count) {
    return add_bytes(aligned_bytes(count, sizeof(T)));
  }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::size_t add_bytes(std::size_t bytes);
  std::size_t bytes_ = 0;
};

/// The call's way into a workspace.
class WorkspaceAccess {
 public:
  /// At least `bytes` of memory, valid until the next call; what it holds is undefined. Throws std::bad_alloc; the
  /// workspace then holds nothing.
  static std::byte* reserve(Workspace& workspace, std::size_t bytes);
  /// The workspace of the options, or the calling thread's own.
  static Workspace& of(const Options& options);
};

}  // namespace qkv::engine
