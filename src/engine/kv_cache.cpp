#include "qkv/kv_cache.h"

#include <fmt/format.h>
#include <sys/mman.h>

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

/// The system's huge pages are as large on x86-64, and on AArch64 with pages of 4 KiB.
constexpr std::size_t kHugePage = std::size_t{2} << 20U;

/// Pages that hold so many tokens.
std::size_t pages_of(Index tokens) {
  return static_cast<std::size_t>((tokens + kSegmentKeys - 1) / kSegmentKeys);
}

}  // namespace

PageMemory::PageMemory(std::size_t bytes)
    : alignment_(std::align_val_t{bytes < kHugePage ? engine::kAlignment : kHugePage}),
      data_(static_cast<std::byte*>(::operator new(bytes, alignment_))) {
  if (bytes >= kHugePage) ::madvise(data_, bytes, MADV_HUGEPAGE);  // a wish
  std::memset(data_, 0, bytes);
}

PageMemory::~PageMemory() { ::operator delete(data_, alignment_); }

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
  static_cast<void>(page_bytes());  // fits
  sequences_.resize(static_cast<std::size_t>(options_.batch));
  lengths_.resize(sequences_.size());
}

/// A page for a sequence that is about to grow.
template <class T>
struct KvCache<T>::FreshPage {
  std::size_t sequence = 0;
  std::size_t number = 0;
  std::shared_ptr<Page> page;
};

template <class T>
std::size_t KvCache<T>::checked(const char* operation, Index sequence) const {
  if (sequence < 0 || sequence >= options_.batch) {
    fail(operation, "sequence",
         fmt::format("expected an index below B={}, got {}", options_.batch, sequence));
  }
  return static_cast<std::size_t>(sequence);
}

/// The pages that a sequence lacks for so many more tokens: new ones, and copies of what others share. Nothing that can be
/// read changes, but there is room in the list of pages then.
template <class T>
void KvCache<T>::add_fresh_pages(std::size_t sequence, Index tokens,
                                 std::vector<FreshPage>& fresh) {
  auto& pages = sequences_[sequence].pages;
  const std::size_t end = pages_of(lengths_[sequence] + tokens);
  if (end > pages.capacity()) pages.reserve(std::max(end, 2 * pages.capacity()));
  const std::size_t bytes = page_bytes();
  // Small pages share a huge one.
  const std::size_t most_together = std::max<std::size_t>(1, kHugePage / bytes);
  std::shared_ptr<PageMemory> memory;
  std::size_t room = 0;  // pages that are left in it
  for (auto number = static_cast<std::size_t>(lengths_[sequence] / kSegmentKeys); number < end;
       ++number) {
    const Page* shared = number < pages.size() ? pages[number].get() : nullptr;
    if (shared != nullptr && pages[number].use_count() == 1) continue;
    if (room == 0) {
      room = std::min(end - number, most_together);
      memory = std::make_shared<PageMemory>(room * bytes);
    }
    auto page = std::make_shared<Page>();
    page->memory = memory;
    page->data = reinterpret_cast<T*>(memory->data() + --room * bytes);
    page->head_elements = kSegmentKeys * (options_.key_width + value_columns_);
    if (shared == nullptr) {
      page->finite.assign(static_cast<std::size_t>(options_.kv_heads), true);
    } else {
      page->finite = shared->finite;
      std::memcpy(static_cast<void*>(page->data), static_cast<const void*>(shared->data), bytes);
    }
    fresh.push_back({sequence, number, std::move(page)});
  }
}

template <class T>
void KvCache<T>::install(std::vector<FreshPage>& fresh) noexcept {
  for (FreshPage& one : fresh) {
    auto& pages = sequences_[one.sequence].pages;
    if (one.number >= pages.size()) pages.resize(one.number + 1);
    pages[one.number] = std::move(one.page);
  }
}

/// Writes to pages that are there, and gives back those that no coming token sees.
template <class T>
void KvCache<T>::extend(std::size_t sequence, const TensorView<const T, 3>& key,
                        const TensorView<const T, 3>& value) noexcept {
  Sequence& target = sequences_[sequence];
  Index& length = lengths_[sequence];
  write(target, length, key, value);
  if (options_.window) {
    // The first of these tokens sees `window` positions before it.
    const Index first = std::max(target.first, length - *options_.window);
    for (Index number = target.first / kSegmentKeys; (number + 1) * kSegmentKeys <= first;
         ++number) {
      target.pages[static_cast<std::size_t>(number)].reset();
    }
    target.first = first;
  }
  length += key.shape(1);
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
  std::vector<FreshPage> fresh;
  for (std::size_t b = 0; b < sequences_.size(); ++b) add_fresh_pages(b, tokens, fresh);
  install(fresh);
  for (Index b = 0; b < options_.batch; ++b) {
    extend(static_cast<std::size_t>(b), sequence_of(key, b), sequence_of(value, b));
  }
}

template <class T>
void KvCache<T>::append(Index sequence, const TensorView<const T, 3>& key,
                        const TensorView<const T, 3>& value) {
  const std::size_t target = checked(kAppend, sequence);
  const Index tokens = key.shape(1);
  expect_shape(kAppend, {"key", footprint(key)},
               Extents<3>{options_.kv_heads, tokens, options_.key_width});
  expect_shape(kAppend, {"value", footprint(value)},
               Extents<3>{options_.kv_heads, tokens, options_.value_width});
  std::vector<FreshPage> fresh;
  add_fresh_pages(target, tokens, fresh);
  install(fresh);
  extend(target, key, value);
}

template <class T>
void KvCache<T>::truncate(Index sequence, Index length) {
  const std::size_t number = checked("KvCache::truncate", sequence);
  if (length < 0 || length > lengths_[number]) {
    fail("KvCache::truncate", "length",
         fmt::format("expected 0 to {}, got {}", lengths_[number], length));
  }
  Sequence& target = sequences_[number];
  lengths_[number] = length;
  target.pages.resize(pages_of(length));
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
  const std::size_t source = other.checked(kOperation, from);
  const std::size_t target = checked(kOperation, to);
  Sequence copy = other.sequences_[source];
  sequences_[target] = std::move(copy);
  lengths_[target] = other.lengths_[source];
}

template <class T>
Index KvCache<T>::length(Index sequence) const {
  return lengths_[checked("KvCache::length", sequence)];
}

template <class T>
Index KvCache<T>::first(Index sequence) const {
  return sequences_[checked("KvCache::first", sequence)].first;
}

template <class T>
std::size_t KvCache<T>::bytes() const noexcept {
  std::size_t pages = 0;
  for (const Sequence& sequence : sequences_) {
    for (const auto& page : sequence.pages) pages += page == nullptr ? 0U : 1U;
  }
  return pages * page_bytes();
}

template <class T>
std::size_t KvCache<T>::page_bytes() const {
  return engine::aligned_bytes(
      engine::product({options_.kv_heads, kSegmentKeys, options_.key_width + value_columns_}),
      sizeof(T));
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
    cache.lengths_[b] = lengths[b];
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
