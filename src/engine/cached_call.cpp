#include "engine/cached_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace qkv::engine {
namespace {

[[noreturn]] void fail(std::string_view operation, std::string_view argument,
                       const std::string& problem) {
  throw std::invalid_argument(fmt::format("{}: {}: {}", operation, argument, problem));
}

}  // namespace

template <class T>
CachedCall<T> validate_cached(std::string_view operation, const KvCache<T>& cache,
                              const AttentionInputs<T>& inputs, const Options& options) {
  const KvCacheOptions& held = cache.options();
  if (options.target && *options.target != *held.target) {
    fail(operation, "target",
         fmt::format("expected the cache's, {}, got {}", *held.target, *options.target));
  }
  if (inputs.key.data() != nullptr || inputs.value.data() != nullptr) {
    fail(operation, "key, value", "expected none, as the cache holds them, got some");
  }
  CachedCall<T> call{inputs, {}, {}};
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
  std::vector<Index> lengths;
  std::vector<Index> offsets;
  for (Index b = 0; b < held.batch; ++b) {
    const Index length = cache.length(b);
    lengths.push_back(length);
    offsets.push_back(length - queries);
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
  if (held.batch > 0) {
    const Corner corner = Corner::at(offsets);
    call.inputs.mask = call.inputs.mask & Mask::causal(corner) & Mask::key_lengths(lengths);
    if (held.window) {
      call.inputs.mask =
          call.inputs.mask & Mask::sliding_window({*held.window, std::nullopt, corner});
    }
    if (call.inputs.alibi && !call.inputs.alibi->corner) call.inputs.alibi->corner = corner;
  }
  const AttentionShape shape{
      .batch = held.batch,
      .heads = heads,
      .kv_heads = held.kv_heads,
      .queries = queries,
      .keys = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end()),
      .key_width = held.key_width,
      .value_width = held.value_width};
  call.plan = validate_options(operation, call.inputs, shape);
  return call;
}

template CachedCall<double> validate_cached(std::string_view, const KvCache<double>&,
                                            const AttentionInputs<double>&, const Options&);
template CachedCall<float> validate_cached(std::string_view, const KvCache<float>&,
                                           const AttentionInputs<float>&, const Options&);
template CachedCall<Float16> validate_cached(std::string_view, const KvCache<Float16>&,
                                             const AttentionInputs<Float16>&, const Options&);
template CachedCall<BFloat16> validate_cached(std::string_view, const KvCache<BFloat16>&,
                                              const AttentionInputs<BFloat16>&, const Options&);

}  // namespace qkv::engine
