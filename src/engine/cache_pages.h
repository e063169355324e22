// The pages of a cache, as the engine reads them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "engine/huge_page_memory.h"
#include "qkv/kv_cache.h"

namespace qkv {

/// The keys and values of kSegmentKeys positions of one sequence, for all its kv heads: key panels, then row panels of the
/// values. Positions that were never written are 0.
template <class T>
struct KvCache<T>::Page {
  T* head(Index kv_head) noexcept { return data + kv_head * head_elements; }

  std::shared_ptr<const engine::HugePageMemory> memory;  // may hold other pages, too
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
