// A checked call whose keys and values lie in a cache.
#pragma once

#include "base/validate.h"
#include "engine/setting.h"
#include "qkv/kv_cache.h"

namespace qkv::engine {

struct CachedCall {
  AttentionPlan plan;  // with the tokens' positions; refers to the inputs and the cache
  Setting setting;
};

/// Throws std::invalid_argument where the call does not fit the cache.
template <class T>
CachedCall validate_cached(std::string_view operation, const KvCache<T>& cache,
                           const AttentionInputs<T>& inputs, const Options& options);

}  // namespace qkv::engine
