// The engine: exact attention in tiles, on all cores, in the arithmetic of its storage.
//
// Same arguments and same meaning as the oracle (qkv/reference.h), without a score matrix in memory: a tile of queries
// meets one segment of 256 keys after the other and keeps a running softmax (Milakov and Gimelshein, "Online
// normalizer calculation for softmax", 2018; Dao et al., "FlashAttention", 2022). What a mask hides is skipped.
//
// Arithmetic: float64 in float64; float32, and float16 and bfloat16 (storage alone), in float32.
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

/// Memory that calls reuse. It grows to what the largest call needed and is freed with the object.
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
