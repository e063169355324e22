// How a backward call is divided, and where its pieces lie in the workspace.
#pragma once

#include <atomic>

#include "engine/call.h"

namespace qkv::engine {

/// Blocks of keys whose gradients one thread gathers at a time: a fixed number, for the gradient of a query is summed
/// within them first.
inline constexpr Index kChunkBlocks = 3;
inline constexpr Index kChunkKeys = kChunkBlocks * kernels::kGradientKeys;

struct BackwardPlan {
  int threads = 1;
  Index kv_heads = 0;
  Index whole_heads = 0;    // handed out whole, one a thread at a time; of the others, chunks
  Index chunks = 0;         // of keys, at least 1
  Index tiles = 0;          // of kGradientRows rows, a kv head
  Index depth_columns = 0;  // widths rounded up to panels
  Index value_columns = 0;
  Index key_panels = 0;  // elements of a block's key panels
  Index value_panels = 0;

  // Offsets in the workspace, in bytes.
  std::size_t turns_at = 0;     // [kv heads][tiles], which chunk may add next
  std::size_t done_at = 0;      // [kv heads][chunks]
  std::size_t delta_at = 0;     // [B,H,T]
  std::size_t unused_at = 0;    // [B,H,T], 1 for queries that are left out
  std::size_t row_sums_at = 0;  // [B,H,T], where a bias is the same for all keys
  std::size_t threads_at = 0;
  std::size_t thread_bytes = 0;
  // From the beginning of a thread's memory.
  std::size_t query_blocks_at = 0;
  std::size_t query_rows_at = 0;
  std::size_t gradient_blocks_at = 0;
  std::size_t gradient_rows_at = 0;
  std::size_t gathered_at = 0;
  std::size_t lse_at = 0;
  std::size_t row_delta_at = 0;
  std::size_t weights_at = 0;
  std::size_t score_gradient_at = 0;
  std::size_t bias_gradient_at = 0;
  std::size_t slopes_at = 0;
  std::size_t upstream_at = 0;
  std::size_t visible_at = 0;
  std::size_t query_gradient_at = 0;
  std::size_t keys_at = 0;
  std::size_t key_rows_at = 0;
  std::size_t values_at = 0;
  std::size_t key_gradient_at = 0;
  std::size_t value_gradient_at = 0;

  std::size_t bytes = 0;
};

/// Throws std::bad_alloc where sizes overflow.
template <class T>
BackwardPlan plan_backward(const Call<T>& call, int threads);

}  // namespace qkv::engine
