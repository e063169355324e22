// The pages of a cache, as the engine reads them.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "qkv/kv_cache.h"

namespace qkv {

/// Zeros for the pages that a call adds together, in huge pages of the system where it has them: decode reads all of a cache,
/// and does so half as fast again with few misses of the page tables.
class PageMemory {
 public:
  explicit PageMemory(std::size_t bytes);
  PageMemory(const PageMemory&) = delete;
  PageMemory& operator=(const PageMemory&) = delete;
  ~PageMemory();

  std::byte* data() const noexcept { return data_; }

 private:
  std::align_val_t alignment_;
  std::byte* data_;
};

/// The keys and values of kSegmentKeys positions of one sequence, for all its kv heads: key panels, then row panels of the
/// values. Positions that were never written are 0.
template <class T>
struct KvCache<T>::Page {
  T* head(Index kv_head) noexcept { return data + kv_head * head_elements; }

  std::shared_ptr<const PageMemory> memory;  // may hold other pages, too
  T* data = nullptr;
  Index head_elements = 0;
  std::vector<bool> finite;  // values, by kv head
};

/// One segment of one kv head.
template <class T>
struct CachedSegment {
  const T* keys = nullptr;
  const T* values = nullptr;
  bool finite = true;
};

class KvCacheAccess {
 public:
  template <class T>
  static CachedSegment<T> segment(const KvCache<T>& cache, Index sequence, Index kv_head,
                                  Index number) noexcept;

  /// A cache that holds as many tokens of each sequence, appended at once, but no page: to be planned, for plans read none.
  template <class T>
  static KvCache<T> without_pages(const KvCacheOptions& options, const std::vector<Index>& lengths);
  /// Tokens of each sequence.
  template <class T>
  static std::span<const Index> lengths(const KvCache<T>& cache) noexcept {
    return cache.lengths_;
  }
};

}  // namespace qkv
