// Keys and values of the tokens so far, kept as the engine's kernels read them: decoding repacks nothing.
//
//   KvCache<float> cache({.batch = 1, .kv_heads = 8, .key_width = 128, .value_width = 128});
//   cache.append(key.view(), value.view());                        // [B,Hkv,N,Dk] and [B,Hkv,N,Dv]
//   engine::forward(cache, {.query = query.view()}, {.context = context.view()});  // the last T tokens
//
// Tokens lie in pages of 256 positions, aligned to absolute positions: the segments of engine::forward. So the results for a
// token have the bits of the whole forward pass, whether the tokens before it came one by one, in chunks or at once, and
// whether pages that no window reaches any more have been given back or not.
//
// Re-entrant for calls that read (any number of forward calls); a call that changes the cache must be alone.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "qkv/engine.h"

namespace qkv {

struct KvCacheOptions {
  Index batch = 1;        ///< B, sequences
  Index kv_heads = 1;     ///< Hkv
  Index key_width = 1;    ///< Dk
  Index value_width = 1;  ///< Dv
  /// A token sees itself and this many before it; pages that no coming token sees are given back. Absent: all.
  std::optional<Index> window = std::nullopt;
  /// The SIMD target whose layout the pages have, one of engine::targets(); the fastest where absent.
  std::optional<std::string> target = std::nullopt;
};

/// T is double, float, Float16 or BFloat16: how keys and values are stored. A copy is a fork: it shares the pages, and
/// whoever writes to a shared page first gets one of its own.
template <class T>
class KvCache {
 public:
  /// Throws std::invalid_argument on a negative size, no kv head, or an unknown target.
  explicit KvCache(KvCacheOptions options);
  KvCache(const KvCache&) = default;
  KvCache(KvCache&&) noexcept = default;
  /// Where memory is short, this cache stays what it was.
  KvCache& operator=(const KvCache& other) { return *this = KvCache(other); }
  KvCache& operator=(KvCache&&) noexcept = default;
  ~KvCache() = default;

  /// N tokens for every sequence: key [B,Hkv,N,Dk], value [B,Hkv,N,Dv], any strides. Throws std::invalid_argument where shapes do
  /// not fit; std::bad_alloc where memory is short. The cache is unchanged then. Asks for memory only where a token needs a
  /// page: the first of its 256 positions, or a write to a page that another cache shares.
  void append(const TensorView<const T, 4>& key, const TensorView<const T, 4>& value);
  /// N tokens for one sequence: key [Hkv,N,Dk], value [Hkv,N,Dv].
  void append(Index sequence, const TensorView<const T, 3>& key,
              const TensorView<const T, 3>& value);
  /// Forgets the tokens of a sequence from position `length` on. Throws std::invalid_argument where it has fewer.
  void truncate(Index sequence, Index length);
  /// Sequence `to` becomes a fork of a sequence of another cache (or this one) with the same options but for the batch. Throws
  /// std::invalid_argument where it is none; std::bad_alloc where memory is short. The cache is unchanged then.
  void fork(Index to, const KvCache& other, Index from);

  /// Tokens appended and not truncated.
  Index length(Index sequence) const;
  /// The first position that is still held: 0 without a window.
  Index first(Index sequence) const;
  const KvCacheOptions& options() const noexcept { return options_; }
  /// Bytes of all pages; shared ones count wherever they are held.
  std::size_t bytes() const noexcept;

 private:
  friend class KvCacheAccess;
  struct Page;
  struct Sequence {
    std::vector<std::shared_ptr<Page>> pages;  // by number of the segment; null where given back
    Index first = 0;
  };
  struct FreshPage;
  std::size_t page_bytes() const;

  std::size_t checked(const char* operation, Index sequence) const;
  void add_fresh_pages(std::size_t sequence, Index tokens, std::vector<FreshPage>& fresh);
  void install(std::vector<FreshPage>& fresh) noexcept;
  void extend(std::size_t sequence, const TensorView<const T, 3>& key,
              const TensorView<const T, 3>& value) noexcept;
  void write(Sequence& sequence, Index position, const TensorView<const T, 3>& key,
             const TensorView<const T, 3>& value) noexcept;

  KvCacheOptions options_;
  Index panel_width_ = 0;
  Index value_columns_ = 0;
  std::vector<Sequence> sequences_;
  std::vector<Index> lengths_;  // of the sequences
};

namespace engine {

/// Attention of the last T tokens of every sequence to what the cache holds: causal at their positions, within
/// the cache's window. inputs.key and inputs.value stay empty; inputs.mask is intersected with that, on [B,H,T,S] with S
/// the largest length, and ALiBi without a corner takes the tokens' positions. Throws std::invalid_argument as forward
/// does, and where a sequence has fewer than T tokens or has given back keys that a query sees.
template <class T>
void forward(const KvCache<T>& cache, const AttentionInputs<T>& inputs,
             const AttentionOutputs<Arithmetic<T>>& outputs, const Options& options = {});

/// How that call would run; of the cache only the lengths are read. Throws like it.
template <class T>
Plan plan(const KvCache<T>& cache, const AttentionInputs<T>& inputs, const Options& options = {},
          bool with_weights = false);

/// Throws like plan, and where there is no such sequence or kv head.
template <class T>
BlockMap map_blocks(const KvCache<T>& cache, const AttentionInputs<T>& inputs, Index sequence,
                    Index kv_head, const Options& options = {});

}  // namespace engine
}  // namespace qkv
