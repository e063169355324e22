#include "qkv/kv_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

#include "base/validate.h"
#include "engine/cache_pages.h"
#include "engine/setting.h"
#include "engine/workspace.h"

namespace qkv {
namespace {

using kernels::kSegmentKeys;

[[noreturn]] void fail(const char* operation, const char* argument, const std::string& problem) {
  throw std::invalid_argument(fmt::format("{}: {}: {}", operation, argument, problem));
}

constexpr const char* kAppend = "KvCache::append";

/// The view of one sequence.
template <class T>
TensorView<const T, 3> sequence_of(const TensorView<const T, 4>& view, Index b) {
  return {view.data() == nullptr ? nullptr : view.data() + b * view.stride(0),
          {view.shape(1), view.shape(2), view.shape(3)},
          {view.stride(1), view.stride(2), view.stride(3)}};
}

bool is_finite(double x) { return std::isfinite(x); }

}  // namespace

template <class T>
KvCache<T>::Page::Page(Index kv_heads, Index elements)
    : head_elements(elements),
      bytes(engine::aligned_bytes(engine::product({kv_heads, elements}), sizeof(T))),
      data(nullptr),
      finite(static_cast<std::size_t>(kv_heads), true) {
  data = static_cast<T*>(::operator new (bytes, std::align_val_t{engine::kAlignment}));
  std::memset(static_cast<void*>(data), 0, bytes);
}

template <class T>
KvCache<T>::Page::Page(const Page& other)
    : head_elements(other.head_elements), bytes(other.bytes), data(nullptr), finite(other.finite) {
  data = static_cast<T*>(::operator new (bytes, std::align_val_t{engine::kAlignment}));
  std::memcpy(static_cast<void*>(data), static_cast<const void*>(other.data), bytes);
}

template <class T>
KvCache<T>::Page::~Page() {
  ::operator delete (data, std::align_val_t{engine::kAlignment});
}

template <class T>
KvCache<T>::KvCache(KvCacheOptions options) : options_(std::move(options)) {
  constexpr const char* kOperation = "KvCache";
  const auto check = [&](const char* name, Index value, Index least) {
    if (value < least) {
      fail(kOperation, name, fmt::format("expected {} or more, got {}", least, value));
    }
  };
  check("batch", options_.batch, 0);
  check("kv_heads", options_.kv_heads, 1);
  check("key_width", options_.key_width, 0);
  check("value_width", options_.value_width, 0);
  check("window", options_.window.value_or(0), 0);
  engine::Options where;
  where.target = options_.target;
  const engine::Setting setting = engine::setting_of(kOperation, where);
  options_.target = setting.target->name;
  panel_width_ = kernels::table_of<engine::Arithmetic<T>>(*setting.target).panel_width;
  value_columns_ =
      (std::max<Index>(options_.value_width, 1) + panel_width_ - 1) / panel_width_ * panel_width_;
  static_cast<void>(
      engine::product({options_.kv_heads, kSegmentKeys, options_.key_width + value_columns_,
                       static_cast<Index>(sizeof(T))}));
  sequences_.resize(static_cast<std::size_t>(options_.batch));
}

template <class T>
typename KvCache<T>::Sequence& KvCache<T>::at(const char* operation, Index sequence) {
  return const_cast<Sequence&>(std::as_const(*this).at(operation, sequence));
}

template <class T>
const typename KvCache<T>::Sequence& KvCache<T>::at(const char* operation, Index sequence) const {
  if (sequence < 0 || sequence >= options_.batch) {
    fail(operation, "sequence",
         fmt::format("expected an index below B={}, got {}", options_.batch, sequence));
  }
  return sequences_[static_cast<std::size_t>(sequence)];
}

/// The sequence with room for tokens at its end: pages of its own where it will write, pages given back that no coming
/// token sees. The one it was is untouched.
template <class T>
typename KvCache<T>::Sequence KvCache<T>::grown(const Sequence& sequence, Index tokens) const {
  Sequence result = sequence;
  const Index end = sequence.length + tokens;
  const Index head_elements = kSegmentKeys * (options_.key_width + value_columns_);
  result.pages.resize(static_cast<std::size_t>((end + kSegmentKeys - 1) / kSegmentKeys));
  for (Index number = sequence.length / kSegmentKeys; number * kSegmentKeys < end; ++number) {
    std::shared_ptr<Page>& page = result.pages[static_cast<std::size_t>(number)];
    if (page == nullptr) {
      page = std::make_shared<Page>(options_.kv_heads, head_elements);
    } else if (page.use_count() > 2) {  // this sequence, the copy of it, and somebody else
      page = std::make_shared<Page>(*page);
    }
  }
  if (options_.window) {
    // The next token to come stands at sequence.length and sees `window` positions before it.
    result.first = std::max(result.first, sequence.length - *options_.window);
    for (Index number = 0; (number + 1) * kSegmentKeys <= result.first; ++number) {
      result.pages[static_cast<std::size_t>(number)].reset();
    }
  }
  return result;
}

template <class T>
void KvCache<T>::write(Sequence& sequence, Index position, const TensorView<const T, 3>& key,
                       const TensorView<const T, 3>& value) noexcept {
  const Index n = panel_width_;
  for (Index h = 0; h < options_.kv_heads; ++h) {
    for (Index i = 0; i < key.shape(1); ++i) {
      Page& page = *sequence.pages[static_cast<std::size_t>((position + i) / kSegmentKeys)];
      const Index place = (position + i) % kSegmentKeys;
      T* keys = page.head(h) + place / n * n * options_.key_width + place % n;
      for (Index d = 0; d < options_.key_width; ++d) keys[d * n] = key(h, i, d);
      T* values = page.head(h) + kSegmentKeys * options_.key_width + place * n;
      bool finite = true;
      for (Index d = 0; d < options_.value_width; ++d) {
        const T x = value(h, i, d);
        values[d / n * n * kSegmentKeys + d % n] = x;
        finite = finite && is_finite(static_cast<double>(x));
      }
      if (!finite) page.finite[static_cast<std::size_t>(h)] = false;
    }
  }
}

template <class T>
void KvCache<T>::append(const TensorView<const T, 4>& key, const TensorView<const T, 4>& value) {
  const Index tokens = key.shape(2);
  expect_shape(kAppend, {"key", footprint(key)},
               Extents<4>{options_.batch, options_.kv_heads, tokens, options_.key_width});
  expect_shape(kAppend, {"value", footprint(value)},
               Extents<4>{options_.batch, options_.kv_heads, tokens, options_.value_width});
  std::vector<Sequence> grown_sequences;
  grown_sequences.reserve(sequences_.size());
  for (const Sequence& sequence : sequences_) grown_sequences.push_back(grown(sequence, tokens));
  for (Index b = 0; b < options_.batch; ++b) {
    Sequence& sequence = grown_sequences[static_cast<std::size_t>(b)];
    write(sequence, sequence.length, sequence_of(key, b), sequence_of(value, b));
    sequence.length += tokens;
  }
  sequences_ = std::move(grown_sequences);
}

template <class T>
void KvCache<T>::append(Index sequence, const TensorView<const T, 3>& key,
                        const TensorView<const T, 3>& value) {
  Sequence& target = at(kAppend, sequence);
  const Index tokens = key.shape(1);
  expect_shape(kAppend, {"key", footprint(key)},
               Extents<3>{options_.kv_heads, tokens, options_.key_width});
  expect_shape(kAppend, {"value", footprint(value)},
               Extents<3>{options_.kv_heads, tokens, options_.value_width});
  Sequence longer = grown(target, tokens);
  write(longer, longer.length, key, value);
  longer.length += tokens;
  target = std::move(longer);
}

template <class T>
void KvCache<T>::truncate(Index sequence, Index length) {
  Sequence& target = at("KvCache::truncate", sequence);
  if (length < 0 || length > target.length) {
    fail("KvCache::truncate", "length",
         fmt::format("expected 0 to {}, got {}", target.length, length));
  }
  target.length = length;
  target.pages.resize(static_cast<std::size_t>((length + kSegmentKeys - 1) / kSegmentKeys));
  target.first = std::min(target.first, length);
}

template <class T>
void KvCache<T>::fork(Index to, const KvCache& other, Index from) {
  constexpr const char* kOperation = "KvCache::fork";
  const KvCacheOptions& theirs = other.options_;
  if (theirs.kv_heads != options_.kv_heads || theirs.key_width != options_.key_width ||
      theirs.value_width != options_.value_width || theirs.window != options_.window ||
      theirs.target != options_.target) {
    fail(kOperation, "other",
         "expected a cache with the same options but for the batch, got others");
  }
  Sequence copy = other.at(kOperation, from);
  at(kOperation, to) = std::move(copy);
}

template <class T>
Index KvCache<T>::length(Index sequence) const {
  return at("KvCache::length", sequence).length;
}

template <class T>
Index KvCache<T>::first(Index sequence) const {
  return at("KvCache::first", sequence).first;
}

template <class T>
std::size_t KvCache<T>::bytes() const noexcept {
  std::size_t sum = 0;
  for (const Sequence& sequence : sequences_) {
    for (const auto& page : sequence.pages) sum += page == nullptr ? 0 : page->bytes;
  }
  return sum;
}

template <class T>
CachedSegment<T> KvCacheAccess::segment(const KvCache<T>& cache, Index sequence, Index kv_head,
                                        Index number) noexcept {
  auto& page =
      *cache.sequences_[static_cast<std::size_t>(sequence)].pages[static_cast<std::size_t>(number)];
  const T* keys = page.head(kv_head);
  return {keys, keys + kSegmentKeys * cache.options_.key_width,
          page.finite[static_cast<std::size_t>(kv_head)]};
}

template <class T>
KvCache<T> KvCacheAccess::without_pages(const KvCacheOptions& options,
                                        const std::vector<Index>& lengths) {
  KvCache<T> cache(options);
  for (std::size_t b = 0; b < cache.sequences_.size(); ++b) {
    cache.sequences_[b].length = lengths[b];
  }
  return cache;
}

#define QKV_INSTANTIATE(T)                                                          \
  template class KvCache<T>;                                                        \
  template CachedSegment<T> KvCacheAccess::segment(const KvCache<T>&, Index, Index, \
                                                   Index) noexcept;                 \
  template KvCache<T> KvCacheAccess::without_pages(const KvCacheOptions&,           \
                                                   const std::vector<Index>&);
QKV_INSTANTIATE(double)
QKV_INSTANTIATE(float)
QKV_INSTANTIATE(Float16)
QKV_INSTANTIATE(BFloat16)
#undef QKV_INSTANTIATE

}  // namespace qkv
