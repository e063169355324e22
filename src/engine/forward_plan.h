// How a forward call is divided, and where its pieces lie in the workspace.
#pragma once

#include <atomic>

#include "engine/call.h"

namespace qkv::engine {

/// How far a kv head is.
struct ForwardProgress {
  std::atomic<Index> packed{0};  ///< segments, by tiles
  std::atomic<Index> done{0};    ///< tiles, or runs
};

struct ForwardNeeds {
  bool with_weights = false;
  bool cached = false;  ///< panels come from a cache
};

struct ForwardPlan {
  const kernels::Target* target = nullptr;
  int threads = 1;
  Index kv_heads = 0;       // of all samples
  Index first_segment = 0;  // segments that some row may see
  Index segments = 0;
  Index columns = 0;  // of a row of context: the width of the values rounded up to panels
  Index segment_keys_elements = 0;
  Index segment_values_elements = 0;

  bool values_in_place = false;  // read where they lie, not packed

  bool by_keys = false;  // else by tiles of rows
  Index tile_rows = 0;
  Index tiles = 0;  // a kv head, by tiles
  Index slots = 0;  // kv heads whose panels are held at a time, by tiles
  Index runs = 0;   // parts that the keys of a kv head are divided into, by keys

  // Offsets in the workspace, in bytes.
  std::size_t progress_at = 0;
  std::size_t finite_at = 0;
  std::size_t panels_at = 0;
  std::size_t states_at = 0;
  std::size_t threads_at = 0;
  std::size_t thread_bytes = 0;
  // From the beginning of a thread's memory.
  std::size_t query_at = 0;
  std::size_t scores_at = 0;
  std::size_t max_at = 0;
  std::size_t sum_at = 0;
  std::size_t context_at = 0;
  std::size_t row_at = 0;
  std::size_t keys_at = 0;
  std::size_t values_at = 0;

  std::size_t bytes = 0;
};

/// Throws std::bad_alloc where sizes overflow.
template <class T>
ForwardPlan plan_forward(const Call<T>& call, const ForwardNeeds& needs, const Setting& setting);

}  // namespace qkv::engine
