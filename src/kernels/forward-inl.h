// A block of queries against a segment of keys. Included once for every SIMD target.
#if defined(QKV_KERNELS_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_FORWARD_INL_H_
#undef QKV_KERNELS_FORWARD_INL_H_
#else
#define QKV_KERNELS_FORWARD_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>
#include "kernels/dropout-inl.h"
#include "kernels/exp2-inl.h"
#include "kernels/kernel_table.h"
#include "kernels/product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// The panels of a segment that a block computes.
struct PanelRange {
  std::ptrdiff_t begin;  // keys, multiples of the panel's width
  std::ptrdiff_t end;
};

template <class T>
HWY_INLINE PanelRange panels_of(const Visibility& visibility) {
  const auto n = static_cast<std::ptrdiff_t>(2 * hn::Lanes(Full<T>()));
  return {visibility.begin / n * n, (visibility.end + n - 1) / n * n};
}

/// Whether one of the numbers is −∞.
template <class T>
HWY_NOINLINE bool has_lowest(const T* HWY_RESTRICT numbers, std::ptrdiff_t count) noexcept {
  const Full<T> d;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  constexpr T kLowest = -std::numeric_limits<T>::infinity();
  auto found = hn::FirstN(d, 0);
  std::ptrdiff_t j = 0;
  for (; j + lanes <= count; j += lanes) {
    found = hn::Or(found, hn::Eq(hn::LoadU(d, numbers + j), hn::Set(d, kLowest)));
  }
  if (!hn::AllFalse(d, found)) return true;
  for (; j < count; ++j) {
    if (numbers[j] == kLowest) return true;
  }
  return false;
}

/// NaN for NaN, which Highway's own converts to an integer on its way.
template <class D, class V>
HWY_INLINE V tanh_of(D d, V x) {
  const auto nan = hn::IsNaN(x);
  return hn::IfThenElse(nan, x, hn::Tanh(d, hn::IfThenZeroElse(nan, x)));
}

/// Softcap, bias and ALiBi of one row.
template <class T>
HWY_NOINLINE void modify_row(const Modifiers<T>& modifiers, int row, const PanelRange& panels,
                             const Visibility& visibility, T* HWY_RESTRICT scores) {
  const Full<T> d;
  using V = hn::Vec<Full<T>>;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  if (modifiers.softcap != 0) {
    const V cap = hn::Set(d, modifiers.softcap);
    const V inverse = hn::Set(d, 1 / modifiers.softcap);
    for (std::ptrdiff_t j = panels.begin; j < panels.end; j += lanes) {
      const V x = hn::Load(d, scores + j);
      hn::Store(hn::Mul(cap, tanh_of(d, hn::Mul(x, inverse))), d, scores + j);
    }
  }
  if (modifiers.bias != nullptr) {
    // Only keys that exist have a bias, so the ends go one by one.
    const T* HWY_RESTRICT bias = modifiers.bias[row];
    std::ptrdiff_t j = visibility.begin;
    for (; j < visibility.end && j % lanes != 0; ++j) scores[j] += bias[j];
    for (; j + lanes <= visibility.end; j += lanes) {
      hn::Store(hn::Add(hn::Load(d, scores + j), hn::LoadU(d, bias + j)), d, scores + j);
    }
    for (; j < visibility.end; ++j) scores[j] += bias[j];
  }
  if (modifiers.alibi_slopes != nullptr) {
    // Distances are whole numbers, exact up to the precision of T.
    const V slope = hn::Set(d, -modifiers.alibi_slopes[row]);
    const V query = hn::Set(d, static_cast<T>(modifiers.alibi_offsets[row]));
    for (std::ptrdiff_t j = panels.begin; j < panels.end; j += lanes) {
      const V key = hn::Iota(d, static_cast<T>(j));
      const V distance = hn::Abs(hn::Sub(query, key));
      hn::Store(hn::MulAdd(slope, distance, hn::Load(d, scores + j)), d, scores + j);
    }
  }
}

/// Bytes as integers of the width of T.
template <class Bits, class D, class V>
HWY_INLINE hn::Vec<D> promote_flags(D bits, V bytes) {
  if constexpr (sizeof(Bits) == 8) {
    const hn::Rebind<std::uint32_t, D> narrower;
    return hn::PromoteTo(bits, hn::PromoteTo(narrower, bytes));
  } else {
    return hn::PromoteTo(bits, bytes);
  }
}

/// What the row does not see becomes `hidden`.
template <class T>
HWY_INLINE void set_hidden(const Visibility& visibility, int row, const PanelRange& panels,
                           T hidden, T* HWY_RESTRICT scores) {
  std::ptrdiff_t begin = visibility.begin;
  std::ptrdiff_t end = visibility.end;
  if (!visibility.all) {
    begin = visibility.row_begin[row];
    end = visibility.row_end[row];
    if (begin >= end) begin = end = panels.end;
  }
  for (std::ptrdiff_t j = panels.begin; j < begin; ++j) scores[j] = hidden;
  for (std::ptrdiff_t j = end; j < panels.end; ++j) scores[j] = hidden;
  if (!visibility.all && visibility.flags != nullptr) {
    const std::uint8_t* HWY_RESTRICT flags = visibility.flags[row];
    const Full<T> d;
    using Bits = hn::TFromD<hn::RebindToUnsigned<Full<T>>>;
    const hn::RebindToUnsigned<Full<T>> bits;
    const hn::Rebind<std::uint8_t, Full<T>> bytes;
    const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
    const auto hide_one = [&](std::ptrdiff_t j) { scores[j] = flags[j] != 0 ? scores[j] : hidden; };
    std::ptrdiff_t j = begin;
    for (; j < end && j % lanes != 0; ++j) hide_one(j);
    for (; j + lanes <= end; j += lanes) {
      const auto shown =
          hn::Gt(promote_flags<Bits>(bits, hn::LoadU(bytes, flags + j)), hn::Zero(bits));
      const auto kept =
          hn::IfThenElse(hn::RebindMask(d, shown), hn::Load(d, scores + j), hn::Set(d, hidden));
      hn::Store(kept, d, scores + j);
    }
    for (; j < end; ++j) hide_one(j);
  }
}

/// target ← the product of a query block and key panels.
template <class T, class E>
HWY_INLINE void match(std::int32_t rows, std::int32_t depth, const T* HWY_RESTRICT query,
                      const E* HWY_RESTRICT keys, const PanelRange& panels,
                      T* HWY_RESTRICT target) {
  const auto n = static_cast<std::ptrdiff_t>(2 * hn::Lanes(Full<T>()));
  with_rows(rows, [&](auto count) HWY_ATTR {
    for (std::ptrdiff_t first = panels.begin; first < panels.end; first += n) {
      product<Into::Set, decltype(count)::value>(query, 1, kBlockRows,
                                                 packed_panel<T>(keys + first * depth), depth,
                                                 {target + first, kScoreStride});
    }
  });
}

template <class T>
HWY_INLINE bool is_modified(const Modifiers<T>& modifiers) {
  return modifiers.softcap != 0 || modifiers.bias != nullptr || modifiers.alibi_slopes != nullptr;
}

/// Whether some row does not see some key of the panels.
HWY_INLINE bool is_ragged(const Visibility& visibility, const PanelRange& panels) {
  return !visibility.all || visibility.begin != panels.begin || visibility.end != panels.end;
}

/// Products become scores, −∞ where hidden.
template <class T, class E>
HWY_INLINE void modify(const Block<T, E>& block, const PanelRange& panels) {
  const bool modified = is_modified(block.modifiers);
  if (!modified && !is_ragged(block.visibility, panels)) return;
  for (int row = 0; row < block.rows; ++row) {
    T* scores = block.scores + row * kScoreStride;
    if (modified) modify_row(block.modifiers, row, panels, block.visibility, scores);
    set_hidden(block.visibility, row, panels, -std::numeric_limits<T>::infinity(), scores);
  }
}

/// Scores of the block, −∞ where hidden.
template <class T, class E>
HWY_INLINE void score(const Block<T, E>& block, const PanelRange& panels) {
  match(block.rows, block.depth, block.query, block.keys, panels, block.scores);
  modify(block, panels);
}

template <class T>
HWY_INLINE T row_max(const T* HWY_RESTRICT scores, const PanelRange& panels) {
  const Full<T> d;
  using V = hn::Vec<Full<T>>;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  V largest0 = hn::Set(d, -std::numeric_limits<T>::infinity());
  V largest1 = largest0;
  for (std::ptrdiff_t j = panels.begin; j < panels.end; j += 2 * lanes) {
    largest0 = hn::Max(hn::Load(d, scores + j), largest0);
    largest1 = hn::Max(hn::Load(d, scores + j + lanes), largest1);
  }
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(largest0, largest1)));
}

/// scores ← exp2(base·(scores − max)); returns their sum. A hidden score, −∞, becomes 0.
template <bool kScaled, class T>
HWY_INLINE T exponentiate(T* HWY_RESTRICT scores, const PanelRange& panels, T max, T base) {
  const Full<T> d;
  using V = hn::Vec<Full<T>>;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  const V shift = hn::Set(d, max);
  const V factor = hn::Set(d, base);
  // Two sums, of the even and the odd vectors of the segment: their order does not depend on the range.
  V sum0 = hn::Zero(d);
  V sum1 = hn::Zero(d);
  for (std::ptrdiff_t j = panels.begin; j < panels.end; j += 2 * lanes) {
    V x0 = hn::Sub(hn::Load(d, scores + j), shift);
    V x1 = hn::Sub(hn::Load(d, scores + j + lanes), shift);
    if constexpr (kScaled) {
      x0 = hn::Mul(x0, factor);
      x1 = hn::Mul(x1, factor);
    }
    const V p0 = exp2_of(d, x0);
    const V p1 = exp2_of(d, x1);
    sum0 = hn::Add(sum0, p0);
    sum1 = hn::Add(sum1, p1);
    hn::Store(p0, d, scores + j);
    hn::Store(p1, d, scores + j + lanes);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
}

/// Weights that are dropped become 0, the others grow by as much as is lost on average.
template <class T>
HWY_NOINLINE void drop(const Dropout<T>& dropout, int row, const PanelRange& panels,
                       T* HWY_RESTRICT weights) {
  alignas(64) T factors[kSegmentKeys];
  dropout_factors(dropout, row, factors);
  for (std::ptrdiff_t j = panels.begin; j < panels.end; ++j) weights[j] *= factors[j];
}

/// A maximum to subtract: 0 for a row that has seen nothing, as −∞ less −∞ is NaN.
template <class T>
HWY_INLINE T reference_of(T max) {
  return max == -std::numeric_limits<T>::infinity() ? T{0} : max;
}

/// The factors with which a state (max, sum) and a later one are merged; updates max and sum.
template <class T>
HWY_INLINE void merge_factors(std::int32_t rows, T base, const T* HWY_RESTRICT next_max,
                              const T* HWY_RESTRICT next_sum, T* HWY_RESTRICT max,
                              T* HWY_RESTRICT sum, T* HWY_RESTRICT decay, T* HWY_RESTRICT gain) {
  const hn::CappedTag<T, 4> d;
  const auto lanes = static_cast<std::int32_t>(hn::Lanes(d));
  for (std::int32_t row = 0; row < rows; ++row) {
    const T largest = next_max[row] > max[row] ? next_max[row] : max[row];
    decay[row] = base * (max[row] - reference_of(largest));
    gain[row] = base * (next_max[row] - reference_of(largest));
    if (next_max[row] == -std::numeric_limits<T>::infinity()) {
      // Nothing was seen, so nothing changes: not even a sink of +∞ or NaN turns into a NaN of the context.
      decay[row] = 0;
      gain[row] = next_max[row];
    }
    max[row] = largest;
  }
  for (std::int32_t row = 0; row < rows; row += lanes) {
    hn::StoreU(exp2_of(d, hn::LoadU(d, decay + row)), d, decay + row);
    hn::StoreU(exp2_of(d, hn::LoadU(d, gain + row)), d, gain + row);
  }
  for (std::int32_t row = 0; row < rows; ++row) {
    sum[row] = sum[row] * decay[row] + next_sum[row] * gain[row];
  }
}

/// context ← decay·context + gain·p·v over the keys that each row sees, for values that are not all finite: 0·∞ would be
/// NaN. The same order of operations as product.
template <class T, class E>
HWY_NOINLINE void aggregate_visible(const Block<T, E>& block, const T* HWY_RESTRICT decay,
                                    const T* HWY_RESTRICT gain, T* HWY_RESTRICT context) {
  const Full<T> d;
  using V = hn::Vec<Full<T>>;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  const std::ptrdiff_t n = 2 * lanes;
  const Visibility& visibility = block.visibility;
  for (int row = 0; row < block.rows; ++row) {
    const T* HWY_RESTRICT weights = block.scores + row * kScoreStride;
    const std::ptrdiff_t begin = visibility.all ? visibility.begin : visibility.row_begin[row];
    const std::ptrdiff_t end = visibility.all ? visibility.end : visibility.row_end[row];
    const std::uint8_t* flags =
        visibility.all || visibility.flags == nullptr ? nullptr : visibility.flags[row];
    for (std::ptrdiff_t column = 0; column < block.columns; column += n) {
      const E* HWY_RESTRICT values = block.values.data + column * block.values.column;
      V sum0 = hn::Zero(d);
      V sum1 = hn::Zero(d);
      for (std::ptrdiff_t j = begin; j < end; ++j) {
        if (flags != nullptr && flags[j] == 0) continue;
        const V weight = hn::Set(d, weights[j]);
        sum0 = hn::MulAdd(weight, load_panel(d, values + j * block.values.row), sum0);
        sum1 = hn::MulAdd(weight, load_panel(d, values + j * block.values.row + lanes), sum1);
      }
      T* HWY_RESTRICT target = context + row * block.columns + column;
      const V d0 = hn::Set(d, decay[row]);
      const V g0 = hn::Set(d, gain[row]);
      hn::Store(hn::MulAdd(sum0, g0, hn::Mul(hn::Load(d, target), d0)), d, target);
      hn::Store(hn::MulAdd(sum1, g0, hn::Mul(hn::Load(d, target + lanes), d0)), d, target + lanes);
    }
  }
}

template <class T, class E>
HWY_NOINLINE void attend_segment(const Block<T, E>& block, const RowState<T>& state) noexcept {
  const PanelRange panels = panels_of<T>(block.visibility);
  score(block, panels);
  constexpr int kPadded = kMostBlockRows + 4;
  T next_max[kPadded] = {};
  T next_sum[kPadded] = {};
  T decay[kPadded] = {};
  T gain[kPadded] = {};
  // One loop after the other: the rows of each do not wait for one another, as a row's steps do.
  for (int row = 0; row < block.rows; ++row) {
    next_max[row] = row_max(block.scores + row * kScoreStride, panels);
  }
  for (int row = 0; row < block.rows; ++row) {
    T* scores = block.scores + row * kScoreStride;
    const T reference = reference_of(next_max[row]);
    next_sum[row] = block.base == 1 ? exponentiate<false>(scores, panels, reference, block.base)
                                    : exponentiate<true>(scores, panels, reference, block.base);
  }
  if (block.dropout.threshold != 0) {
    for (int row = 0; row < block.rows; ++row) {
      drop(block.dropout, row, panels, block.scores + row * kScoreStride);
    }
  }
  merge_factors(block.rows, block.base, next_max, next_sum, state.max, state.sum, decay, gain);
  if (!block.finite_values && !block.visibility.all) {
    aggregate_visible(block, decay, gain, state.context);
    return;
  }
  const auto n = static_cast<std::ptrdiff_t>(2 * hn::Lanes(Full<T>()));
  const std::ptrdiff_t begin = block.visibility.begin;
  const std::ptrdiff_t depth = block.visibility.end - begin;
  const ValueRows<E>& values = block.values;
  with_rows(block.rows, [&](auto rows) HWY_ATTR {
    for (std::ptrdiff_t column = 0; column < block.columns; column += n) {
      product<Into::Fold, decltype(rows)::value>(
          block.scores + begin, kScoreStride, 1,
          Panel<E>{values.data + column * values.column + begin * values.row, values.row}, depth,
          {state.context + column, block.columns, decay, gain});
    }
  });
}

template <class T>
HWY_NOINLINE void merge_states(const RowState<T>& state, const RowState<T>& next, std::int32_t rows,
                               std::int32_t columns, T base) noexcept {
  const Full<T> d;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  constexpr int kPadded = kMostBlockRows + 4;
  T decay[kPadded] = {};
  T gain[kPadded] = {};
  merge_factors(rows, base, next.max, next.sum, state.max, state.sum, decay, gain);
  for (std::int32_t row = 0; row < rows; ++row) {
    const auto d0 = hn::Set(d, decay[row]);
    const auto g0 = hn::Set(d, gain[row]);
    T* HWY_RESTRICT target = state.context + std::ptrdiff_t{row} * columns;
    const T* HWY_RESTRICT from = next.context + std::ptrdiff_t{row} * columns;
    for (std::ptrdiff_t j = 0; j < columns; j += lanes) {
      hn::StoreU(hn::MulAdd(hn::LoadU(d, from + j), g0, hn::Mul(hn::LoadU(d, target + j), d0)), d,
                 target + j);
    }
  }
}

template <class T>
HWY_NOINLINE void finish(const T* HWY_RESTRICT context, T sum, std::ptrdiff_t width,
                         T* HWY_RESTRICT target) noexcept {
  const Full<T> d;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  const T inverse = 1 / sum;
  const auto factor = hn::Set(d, inverse);
  std::ptrdiff_t j = 0;
  for (; j + lanes <= width; j += lanes) {
    hn::StoreU(hn::MulAdd(hn::Load(d, context + j), factor, hn::Zero(d)), d, target + j);
  }
  for (; j < width; ++j) target[j] = context[j] * inverse + T{0};
}

template <class T>
HWY_NOINLINE void weigh(const Block<T>& block, const T* max, const T* sum) noexcept {
  const Full<T> d;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  const PanelRange panels = panels_of<T>(block.visibility);
  score(block, panels);
  for (int row = 0; row < block.rows; ++row) {
    T* HWY_RESTRICT scores = block.scores + row * kScoreStride;
    const auto shift = hn::Set(d, reference_of(max[row]));
    const auto total = hn::Set(d, sum[row]);
    const auto factor = hn::Set(d, block.base);
    for (std::ptrdiff_t j = panels.begin; j < panels.end; j += lanes) {
      const auto power = exp2_of(d, hn::Mul(factor, hn::Sub(hn::Load(d, scores + j), shift)));
      hn::Store(hn::Div(power, total), d, scores + j);
    }
  }
}

}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // QKV_KERNELS_FORWARD_INL_H_
