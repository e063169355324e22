// The inner kernels of the engine, one table of functions for each SIMD target.
//
// A kernel works on one block: up to `block_rows` rows of queries against the keys of one segment. It has no
// policy, allocates nothing and treats every row alike whatever its neighbours, so that the bits of a row depend
// on that row, its visible keys and their absolute positions alone.
//
// Layouts, n = panel_width (two vectors), R = block_rows:
//
//   query block    [depth][R]                      row r of the block in column r; absent rows are 0
//   key panels     [S/n][depth][n]                 key j of a panel in column j
//   row panels     [width/n][rows][n]              row r, columns [n·p, n·p + n): values, and operands of gradients
//   scores         [R][kScoreStride]               of the keys of one segment
//   context        [R][columns]                    columns = width rounded up to panels
//
// Scores times `base` are logarithms to base 2: base is 1 where log₂e is folded into the scale of the queries, and log₂e
// where a modifier stands between the product and the score.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "qkv/dtype.h"

namespace qkv::kernels {

/// Keys of a segment of the forward pass, anchored at multiples of it: the unit of the softmax's merge order.
inline constexpr std::ptrdiff_t kSegmentKeys = 256;
/// Keys of a block of the backward pass: a multiple of every panel and every block of rows.
inline constexpr std::ptrdiff_t kGradientKeys = 192;
/// Rows of a tile of the backward pass.
inline constexpr std::ptrdiff_t kGradientRows = 48;
/// Distance of two rows of scores: not a power of two, so that rows do not share cache sets.
inline constexpr std::ptrdiff_t kScoreStride = kSegmentKeys + 16;
/// The most rows of a block that any target has.
inline constexpr std::ptrdiff_t kMostBlockRows = 12;

/// Rows of elements that lie `row` elements apart, their elements `column` apart.
template <class T>
struct Strided {
  const T* data = nullptr;
  std::ptrdiff_t row = 0;
  std::ptrdiff_t column = 1;
};

/// What stands between the product of query and key and the score: per row, softcap, then bias, then ALiBi.
template <class T>
struct Modifiers {
  T softcap = 0;                   ///< 0 for none
  const T* const* bias = nullptr;  ///< of each row, from the segment's first key on, dense; or null
  const T* alibi_slopes = nullptr;  ///< of each row, or null
  const double* alibi_offsets =
      nullptr;  ///< of each row: position of the query less that of the segment's first key
};

/// Weights that are dropped at random: a function of sample, head, query, key, seed and offset alone. Word key % 4 of
/// Philox's at counter (key / 4, query, sample·heads + head, offset) decides.
template <class T>
struct Dropout {
  std::uint32_t threshold = 0;  ///< words below are dropped; 0 for none
  T scale = 1;                  ///< of those that stay: 1/(1 − probability)
  std::uint32_t key0 = 0;       ///< the seed
  std::uint32_t key1 = 0;
  std::uint32_t offset = 0;
  std::uint32_t first_group = 0;           ///< the segment's first key / 4
  const std::uint32_t* queries = nullptr;  ///< of each row
  const std::uint32_t* heads = nullptr;
};

/// Which keys [0, kSegmentKeys) of the segment each row sees.
struct Visibility {
  std::int32_t begin = 0;  ///< no row sees a key outside of [begin, end)
  std::int32_t end = 0;
  bool all = true;                          ///< every row sees all of [begin, end)
  const std::int32_t* row_begin = nullptr;  ///< of each row, where not all
  const std::int32_t* row_end = nullptr;
  const std::uint8_t* const* flags =
      nullptr;  ///< of each row one byte a key, 1 where visible; or null for none
};

/// The running softmax of a block: Σ exp2(base·(score − max)) and that sum weighted by the values.
template <class T>
struct RowState {
  T* max = nullptr;      ///< [R], −∞ at the start
  T* sum = nullptr;      ///< [R]
  T* context = nullptr;  ///< [R][columns]
};

/// Values of a segment's keys, in runs of n columns: run c of key j begins at data[j·row + c·n·column]. Row panels of
/// kSegmentKeys rows, or rows where they lie.
template <class E>
struct ValueRows {
  const E* data = nullptr;
  std::ptrdiff_t row = 0;
  std::ptrdiff_t column = kSegmentKeys;
};

/// E is how keys and values are stored: T, or 16 bits for float.
template <class T, class E = T>
struct Block {
  std::int32_t rows = 0;  ///< at most R
  std::int32_t depth = 0;
  std::int32_t columns = 0;
  const T* query = nullptr;  ///< query block
  const E* keys = nullptr;   ///< key panels of the segment
  ValueRows<E> values;
  bool finite_values = true;  ///< else hidden rows of values must not be touched
  Visibility visibility;
  Modifiers<T> modifiers;
  Dropout<T> dropout;
  T base = 1;
  T* scores = nullptr;  ///< scratch
};

/// A block of rows of the backward pass against a block of keys.
template <class T>
struct GradientBlock {
  Block<T> block;             ///< without values; its scores become the weights
  const T* values = nullptr;  ///< key panels of the values, [panels][width][n]
  std::int32_t value_width = 0;
  const T* gradient = nullptr;     ///< query block of the context's gradient, [width][R]
  const T* log_sum_exp = nullptr;  ///< of each row, in the unit of the scores
  const T* delta = nullptr;        ///< of each row: Σ weight·(derivative of the weight)
  const T* const* weights_gradient =
      nullptr;                  ///< of each row, dense from the first key on, or null
  T scale = 1;                  ///< derivative of the score by the product, before softcap
  T* slopes = nullptr;          ///< scratch like the scores; needed with softcap
  T* score_gradient = nullptr;  ///< like the scores: derivative by the product
  T* bias_gradient = nullptr;   ///< like the scores: derivative by the bias, or null
};

/// The products that gather the gradients of a tile of rows and a block of keys.
template <class T>
struct GradientTile {
  std::int32_t row_begin = 0;  ///< rows outside of this see none of the keys
  std::int32_t row_end = 0;
  std::int32_t key_begin = 0;  ///< keys outside of this are seen by no row
  std::int32_t key_end = 0;
  std::int32_t depth_columns = 0;  ///< width of the keys, rounded up to panels
  std::int32_t value_columns = 0;
  const T* weights = nullptr;         ///< [rows][kScoreStride]
  const T* score_gradient = nullptr;  ///< the same
  const T* query_rows = nullptr;      ///< row panels of kGradientRows
  const T* gradient_rows = nullptr;   ///< the same, of the context's gradient
  const T* key_rows = nullptr;        ///< row panels of kGradientKeys
  const std::uint8_t* visible =
      nullptr;                  ///< [rows][kGradientKeys] where an operand is not finite; else null
  T* query_gradient = nullptr;  ///< [kGradientRows][depth_columns], added to
  T* key_gradient = nullptr;    ///< [kGradientKeys][depth_columns], added to
  T* value_gradient = nullptr;  ///< [kGradientKeys][value_columns], added to
};

/// A block of rows for a product: row i at depth k is data[i + k·depth].
template <class T>
struct Rows {
  const T* data = nullptr;
  std::ptrdiff_t depth = 0;
};

template <class T>
struct KernelTable {
  std::ptrdiff_t panel_width = 0;
  std::ptrdiff_t block_rows = 0;

  /// rows × width elements into row panels of `panel_rows` rows; columns that do not exist become 0, rows that do
  /// not exist stay what they were. Returns whether all are finite.
  bool (*pack_rows)(const Strided<T>& source, std::ptrdiff_t rows, std::ptrdiff_t width,
                    std::ptrdiff_t panel_rows, T* target) noexcept = nullptr;
  /// keys × depth elements into key panels; keys that do not exist stay what they were.
  void (*pack_keys)(const Strided<T>& source, std::ptrdiff_t keys, std::ptrdiff_t depth,
                    T* target) noexcept = nullptr;
  /// rows × depth elements times `scale` into one query block; absent rows stay what they were.
  void (*pack_query)(const Strided<T>& source, std::ptrdiff_t rows, std::ptrdiff_t depth, T scale,
                     T* target) noexcept = nullptr;
  /// Whether one of the numbers is −∞.
  bool (*has_lowest)(const T* numbers, std::ptrdiff_t count) noexcept = nullptr;
  /// sums [count][n] at this step = a block of rows times a panel [depth][n]; with `add`, which a whole block only may have,
  /// += that. Fewer rows than a block: reads and writes as many as the next compiled one has.
  void (*multiply)(const Rows<T>& rows, const T* panel, std::ptrdiff_t count, std::ptrdiff_t depth,
                   T* sums, std::ptrdiff_t step, bool add) noexcept = nullptr;
  /// One segment further: scores, softmax, values.
  void (*attend)(const Block<T>& block, const RowState<T>& state) noexcept = nullptr;
  void (*attend_float16)(const Block<T, Float16>& block,
                         const RowState<T>& state) noexcept = nullptr;  ///< float only
  void (*attend_bfloat16)(const Block<T, BFloat16>& block,
                          const RowState<T>& state) noexcept = nullptr;  ///< float only
  /// Merges the state of a later segment into an earlier one's.
  void (*merge)(const RowState<T>& state, const RowState<T>& next, std::int32_t rows,
                std::int32_t columns, T base) noexcept = nullptr;
  /// target[j] = context[j]/sum for j < width; −0 becomes 0, for hidden keys may have changed its sign.
  void (*finish)(const T* context, T sum, std::ptrdiff_t width, T* target) noexcept = nullptr;
  /// exp2(base·(score − max))/sum into block.scores, exact 0 where hidden.
  void (*weigh)(const Block<T>& block, const T* max, const T* sum) noexcept = nullptr;

  /// Weights and derivatives of the scores, exact 0 where hidden, for all kGradientKeys keys.
  void (*differentiate)(const GradientBlock<T>& block) noexcept = nullptr;
  /// dq += ds·k, dk += dsᵀ·q, dv += pᵀ·dcontext.
  void (*gather)(const GradientTile<T>& tile) noexcept = nullptr;
};

struct Target {
  std::string_view name;  ///< "AVX3", "AVX2", "SSE4", "NEON", "SCALAR", …
  KernelTable<float> float32;
  KernelTable<double> float64;
  /// values x become x·Φ(x), and slopes, which may be null, Φ(x) + x·φ(x). Off by at most 4 units of 2^-24 of max(1, |x|).
  void (*gelu)(float* values, float* slopes, std::ptrdiff_t count) noexcept = nullptr;
  void (*widen_float16)(const Float16* source, std::ptrdiff_t count,
                        float* target) noexcept = nullptr;
  void (*widen_bfloat16)(const BFloat16* source, std::ptrdiff_t count,
                         float* target) noexcept = nullptr;
};

/// Stored numbers as float32, exactly.
inline void widen(const Target& target, const Float16* source, std::ptrdiff_t count,
                  float* result) noexcept {
  target.widen_float16(source, count, result);
}
inline void widen(const Target& target, const BFloat16* source, std::ptrdiff_t count,
                  float* result) noexcept {
  target.widen_bfloat16(source, count, result);
}

/// One segment further, whatever keys and values are stored as.
template <class T, class E>
void attend(const KernelTable<T>& table, const Block<T, E>& block,
            const RowState<T>& state) noexcept {
  if constexpr (std::is_same_v<E, Float16>) {
    table.attend_float16(block, state);
  } else if constexpr (std::is_same_v<E, BFloat16>) {
    table.attend_bfloat16(block, state);
  } else {
    table.attend(block, state);
  }
}

template <class T>
const KernelTable<T>& table_of(const Target& target) noexcept;
template <>
inline const KernelTable<float>& table_of(const Target& target) noexcept {
  return target.float32;
}
template <>
inline const KernelTable<double>& table_of(const Target& target) noexcept {
  return target.float64;
}

/// The targets that were compiled and that this processor runs, the fastest first.
std::span<const Target> targets();

}  // namespace qkv::kernels
