// The engine: exact attention in tiles, on all cores, in the arithmetic of its storage.
//
// Same arguments and same meaning as the oracle (qkv/reference.h), without a score matrix in memory: a tile of queries
// meets one segment of 256 keys after the other and keeps a running softmax (Milakov and Gimelshein, "Online
// normalizer calculation for softmax", 2018; Dao et al., "FlashAttention", 2022). What a mask hides is skipped.
//
// Arithmetic: float64 in float64; float32, and float16 and bfloat16 (storage alone), in float32. The largest error
// of the exponential is 2.3 units of the last place in float32 and 1.2 in float64; below the normal numbers it gives 0.
//
// Bits: for a given SIMD target the results of a query depend on that query, its visible keys and values with their
// positions, and the options. They do not depend on the number of threads, on the rest of the batch, or on how the
// queries are divided into calls (give the diagonal's position with Corner::at). Segments lie at multiples of 256 keys
// and are merged in order.
//
// Threads: OpenMP's pool, options.threads of it at most. Calls are re-entrant; a Workspace belongs to one call at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "qkv/attention.h"

namespace qkv::engine {

/// What the engine computes with, for a storage type.
template <class T>
using Arithmetic = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// The SIMD targets that this build holds and this processor runs, the fastest first, by Highway's names
/// ("AVX3", "AVX2", "SSE4", "NEON"; the last one is the portable one).
std::vector<std::string> targets();

/// Memory that calls reuse. It grows to what the largest call needed and is freed with the object. A call that finds it
/// large enough asks for no memory at all, whatever its mask and its batch.
class Workspace {
 public:
  Workspace();
  ~Workspace();
  Workspace(Workspace&&) noexcept;
  Workspace& operator=(Workspace&&) noexcept;

  /// Bytes held.
  std::size_t bytes() const noexcept;

 private:
  friend class WorkspaceAccess;
  struct Memory;
  std::unique_ptr<Memory> memory_;
};

/// Weights dropped at random during training (Srivastava et al., 2014): each with the probability, independently; those that stay
/// are divided by 1 − probability. Whether a weight is dropped depends on its sample, head, query and key, seed and offset
/// alone (a word of Philox4x32-10): on no tiling, no thread, and the backward pass drops the same ones. Another step of
/// training takes another offset.
struct Dropout {
  double probability = 0;  ///< 0 <= probability < 1
  std::uint64_t seed = 0;
  std::uint32_t offset = 0;
};

struct Options {
  /// Threads to use at most, 1 or more; what OpenMP would use where absent.
  std::optional<int> threads = std::nullopt;
  /// One of targets(); the fastest where absent.
  std::optional<std::string> target = std::nullopt;
  /// Memory to reuse; where absent each thread that calls keeps one of its own.
  Workspace* workspace = nullptr;
  /// Off where absent. Weights that are returned, and their gradients, are those before dropout. Samples times heads, queries
  /// and keys are below 2^32 each then.
  std::optional<Dropout> dropout = std::nullopt;
};

/// Computes context and, where asked for, weights and log-sum-exp. Any strides in; out, any under which no
/// element repeats, apart from every input. Throws std::invalid_argument where arguments do not fit together,
/// std::bad_alloc where memory is short; outputs are untouched then. Extra memory: keys and values once more for
/// a few heads, and a few tiles a thread.
template <class T>
void forward(const AttentionInputs<T>& inputs, const AttentionOutputs<Arithmetic<T>>& outputs,
             const Options& options = {});

/// What the rows of a block see of a segment of keys.
enum class BlockKind : unsigned char {
  Hidden,   ///< nothing: the block is skipped
  Partial,  ///< some keys, or some rows some: its scores are masked
  Full,     ///< every row every key
};

/// Blocks of rows × keys, counted.
struct BlockCounts {
  Index hidden = 0;
  Index partial = 0;
  Index full = 0;
  Index pairs = 0;          ///< of a query and a key
  Index visible_pairs = 0;  ///< those that see each other

  /// 0 where there are no pairs.
  double visible_fraction() const noexcept;
};

/// The heads of a group read one kv head; their queries are its rows, query by query.
struct HeadPlan {
  Index sample = 0;
  Index kv_head = 0;
  BlockCounts blocks;
};

/// What the threads of a call share out.
enum class Division : unsigned char {
  Tiles,   ///< forward: tiles of rows
  Keys,    ///< forward, few rows, one tile a kv head: parts of its keys
  Chunks,  ///< backward: chunks of keys, which every tile of rows goes past
};

/// How a call runs: told by the code that runs it.
struct Plan {
  std::string target;
  int threads = 1;
  Division division = Division::Tiles;
  std::optional<Dropout> dropout = std::nullopt;  ///< absent where nothing is dropped
  Index rows = 0;                                 ///< of a kv head: T·H/Hkv
  /// Of a block, what a kernel computes at a time; the last ones may have fewer.
  Index block_rows = 0;
  Index block_keys = 0;
  Index tile_rows = 0;  ///< of a tile, what a thread computes at a time
  Index tiles = 0;      ///< of a kv head
  Index key_parts = 1;  ///< that the keys of a kv head are divided into: runs of blocks, or chunks
  /// Backward: kv heads of which one thread takes all chunks; those of the others are handed out one by one. None is taken
  /// whole where the gradient of a bias is summed over heads.
  Index whole_heads = 0;
  std::size_t workspace_bytes = 0;
  std::vector<HeadPlan> heads;  ///< of every sample, B·Hkv
  BlockCounts total;
};

/// How forward would run with these arguments; `with_weights` where the weights are asked for, too. Of the tensors only the
/// bias is read. Throws like forward.
template <class T>
Plan plan(const AttentionInputs<T>& inputs, const Options& options = {}, bool with_weights = false);

/// The same of backward; T is float or double.
template <class T>
Plan plan_backward(const AttentionInputs<T>& inputs, const Options& options = {});

/// The blocks of one kv head, row by row.
struct BlockMap {
  Index rows = 0;      ///< of blocks
  Index segments = 0;  ///< blocks of a row
  std::vector<BlockKind> kinds;

  BlockKind operator()(Index row, Index segment) const {
    return kinds[static_cast<std::size_t>(row * segments + segment)];
  }
};

/// Throws like plan, and where there is no such sample or kv head.
template <class T>
BlockMap map_blocks(const AttentionInputs<T>& inputs, Index sample, Index kv_head,
                    const Options& options = {});

/// The same of backward; T is float or double.
template <class T>
BlockMap map_backward_blocks(const AttentionInputs<T>& inputs, Index sample, Index kv_head,
                             const Options& options = {});

/// What the backward pass needs of the forward.
template <class T>
struct ForwardResults {
  TensorView<const T, 4> context;      ///< [B,H,T,Dv]
  TensorView<const T, 3> log_sum_exp;  ///< [B,H,T]
};

/// Which queries the backward pass goes through.
enum class Queries : unsigned char {
  All,
  /// A query all of whose output gradients are 0 contributes nothing, even where it is NaN or infinite.
  WithGradient,
};

/// Computes the derivatives of a loss whose derivatives with respect to the outputs are given; T is float or double.
/// Weights are computed again from the log-sum-exp (Dao et al., 2022), tiles that the mask hides are skipped. Bits: those
/// of a query's gradient do not depend on the other queries; no gradient's bits depend on threads or batch. The same
/// errors as forward; extra memory a few tiles a thread, and two numbers a query.
template <class T>
void backward(const AttentionInputs<T>& inputs, const ForwardResults<T>& results,
              const AttentionOutputGradients<T>& output_gradients,
              const AttentionInputGradients<T>& input_gradients, const Options& options = {},
              Queries queries = Queries::All);

}  // namespace qkv::engine
