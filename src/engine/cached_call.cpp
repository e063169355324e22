#include "engine/cached_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "engine/cache_pages.h"

namespace qkv::engine {
namespace {

[[noreturn]] void fail(std::string_view operation, std::string_view argument,
                       const std::string& problem) {
  throw std::invalid_argument(fmt::format("{}: {}: {}", operation, argument, problem));
}

}  // namespace

template <class T>
CachedCall validate_cached(std::string_view operation, const KvCache<T>& cache,
                           const AttentionInputs<T>& inputs, const Options& options) {
  const KvCacheOptions& held = cache.options();
  if (options.target && *options.target != *held.target) {
    fail(operation, "target",
         fmt::format("expected the cache's, {}, got {}", *held.target, *options.target));
  }
  if (inputs.key.data() != nullptr || inputs.value.data() != nullptr) {
    fail(operation, "key, value", "expected none, as the cache holds them, got some");
  }
  CachedCall call;
  Options where = options;
  where.target = held.target;
  call.setting = setting_of(operation, where);

  const Index heads = inputs.query.shape(1);
  const Index queries = inputs.query.shape(2);
  expect_shape(operation, {"query", footprint(inputs.query)},
               Extents<4>{held.batch, heads, queries, held.key_width});
  if (heads % held.kv_heads != 0 || heads == 0) {
    fail(operation, "query",
         fmt::format("expected a number of heads that the cache's {} kv heads divide, got {}",
                     held.kv_heads, heads));
  }
  const CachedTokens tokens{KvCacheAccess::lengths(cache), held.window};
  Index longest = 0;
  for (Index b = 0; b < held.batch; ++b) {
    const Index length = cache.length(b);
    longest = std::max(longest, length);
    if (length < queries) {
      fail(operation, "query",
           fmt::format("expected at most the {} tokens of sequence {}, got T={}", length, b,
                       queries));
    }
    const Index seen = held.window ? std::max<Index>(length - queries - *held.window, 0) : 0;
    if (queries > 0 && seen < cache.first(b)) {
      fail(operation, "query",
           fmt::format("expected queries whose window of {} reaches back to position {} at most, "
                       "where sequence {} now begins, got T={}, which reaches {}",
                       *held.window, cache.first(b), b, queries, seen));
    }
  }
  const AttentionShape shape{.batch = held.batch,
                             .heads = heads,
                             .kv_heads = held.kv_heads,
                             .queries = queries,
                             .keys = longest,
                             .key_width = held.key_width,
                             .value_width = held.value_width};
  call.plan = validate_options(operation, inputs, shape, &tokens);
  return call;
}

#define QKV_INSTANTIATE(T)                                                 \
  template CachedCall validate_cached(std::string_view, const KvCache<T>&, \
                                      const AttentionInputs<T>&, const Options&);
QKV_INSTANTIATE(double)
QKV_INSTANTIATE(float)
QKV_INSTANTIATE(Float16)
QKV_INSTANTIATE(BFloat16)
#undef QKV_INSTANTIATE

}  // namespace qkv::engine
