// Copies operands into the layouts of the inner kernel. Included once for every SIMD target.
#if defined(QKV_KERNELS_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_PACK_INL_H_
#undef QKV_KERNELS_PACK_INL_H_
#else
#define QKV_KERNELS_PACK_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/kernel_table.h"
#include "kernels/product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// How far ahead rows are asked for: their short runs give the processor's own prefetching little to go by.
inline constexpr std::ptrdiff_t kRowsAhead = 16;

template <class T>
HWY_INLINE void read_row_ahead(const T* row, std::ptrdiff_t width) {
  constexpr std::ptrdiff_t kLine = 64 / sizeof(T);
  for (std::ptrdiff_t k = 0; k < width; k += kLine) hwy::Prefetch(row + k);
}

#if HWY_TARGET != HWY_SCALAR
/// A vector of D: its 16-byte blocks from rows that lie `step` elements apart.
template <class D>
HWY_INLINE hn::Vec<D> load_blocks(D d, const hn::TFromD<D>* HWY_RESTRICT from,
                                  std::ptrdiff_t step) {
  if constexpr (hn::MaxLanes(d) * sizeof(hn::TFromD<D>) == 16) {
    return hn::LoadU(d, from);
  } else {
    const hn::Half<D> half;
    const auto blocks =
        static_cast<std::ptrdiff_t>(hn::MaxLanes(half) * sizeof(hn::TFromD<D>) / 16);
    return hn::Combine(d, load_blocks(half, from + blocks * step, step),
                       load_blocks(half, from, step));
  }
}

/// transpose for as many whole vectors of rows as there are, four (two of 8 bytes) elements of depth at a time; returns
/// the rows done.
template <class D>
HWY_INLINE std::ptrdiff_t transpose_vectors(D d, const Strided<hn::TFromD<D>>& source,
                                            std::ptrdiff_t rows, std::ptrdiff_t depth,
                                            hn::TFromD<D> scale, hn::TFromD<D>* HWY_RESTRICT target,
                                            std::ptrdiff_t step) {
  using T = hn::TFromD<D>;
  using V = hn::Vec<D>;
  constexpr std::ptrdiff_t kSide = 16 / sizeof(T);
  constexpr auto kRows = static_cast<std::ptrdiff_t>(hn::MaxLanes(D()));
  // Block b of vector i holds row b·kSide + i, so that the squares of the blocks come out side by side.
  const V factor = hn::Set(d, scale);
  std::ptrdiff_t first = 0;
  for (; first + kRows <= rows; first += kRows) {
    const T* HWY_RESTRICT from = source.data + first * source.row;
    for (std::ptrdiff_t i = 0; i < kRows; ++i) {
      read_row_ahead(from + (kRowsAhead + i) * source.row, depth);
    }
    const auto vector = [&](std::ptrdiff_t i, std::ptrdiff_t k) HWY_ATTR {
      return load_blocks(d, from + i * source.row + k, kSide * source.row);
    };
    std::ptrdiff_t k = 0;
    for (; k + kSide <= depth; k += kSide) {
      T* HWY_RESTRICT to = target + k * step + first;
      if constexpr (kSide == 4) {
        const hn::Repartition<double, D> pairs;
        const V r0 = vector(0, k);
        const V r1 = vector(1, k);
        const V r2 = vector(2, k);
        const V r3 = vector(3, k);
        const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, r0, r1));
        const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, r2, r3));
        const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, r0, r1));
        const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, r2, r3));
        const V c0 = hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23));
        const V c1 = hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23));
        const V c2 = hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23));
        const V c3 = hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23));
        hn::StoreU(hn::Mul(c0, factor), d, to);
        hn::StoreU(hn::Mul(c1, factor), d, to + step);
        hn::StoreU(hn::Mul(c2, factor), d, to + 2 * step);
        hn::StoreU(hn::Mul(c3, factor), d, to + 3 * step);
      } else {
        const V r0 = vector(0, k);
        const V r1 = vector(1, k);
        hn::StoreU(hn::Mul(hn::InterleaveLower(d, r0, r1), factor), d, to);
        hn::StoreU(hn::Mul(hn::InterleaveUpper(d, r0, r1), factor), d, to + step);
      }
    }
    for (; k < depth; ++k) {
      for (std::ptrdiff_t i = 0; i < kRows; ++i) {
        target[k * step + first + i] = scale * from[i * source.row + k];
      }
    }
  }
  return first;
}
#endif

/// target[k·step + i] = scale·source[i][k], for i < rows and k < depth.
template <class T>
HWY_INLINE void transpose(const Strided<T>& source, std::ptrdiff_t rows, std::ptrdiff_t depth,
                          T scale, T* HWY_RESTRICT target, std::ptrdiff_t step) {
  std::ptrdiff_t first = 0;
#if HWY_TARGET != HWY_SCALAR
  if (source.column == 1) {
    const auto go_on = [&](auto d) HWY_ATTR {
      const Strided<T> rest{source.data + first * source.row, source.row, 1};
      first += transpose_vectors(d, rest, rows - first, depth, scale, target + first, step);
    };
    const Full<T> whole;
    go_on(whole);
    if constexpr (sizeof(T) * hn::MaxLanes(whole) > 32) go_on(hn::FixedTag<T, 32 / sizeof(T)>());
    if constexpr (sizeof(T) * hn::MaxLanes(whole) > 16) go_on(hn::FixedTag<T, 16 / sizeof(T)>());
  }
#endif
  for (; first < rows; ++first) {
    const T* HWY_RESTRICT from = source.data + first * source.row;
    for (std::ptrdiff_t k = 0; k < depth; ++k) {
      target[k * step + first] = scale * from[k * source.column];
    }
  }
}

template <class T>
HWY_NOINLINE void pack_keys(const Strided<T>& source, std::ptrdiff_t keys, std::ptrdiff_t depth,
                            T* HWY_RESTRICT target) noexcept {
  const auto n = static_cast<std::ptrdiff_t>(2 * hn::Lanes(Full<T>()));
  for (std::ptrdiff_t first = 0; first < keys; first += n) {
    transpose<T>({source.data + first * source.row, source.row, source.column},
                 std::min(n, keys - first), depth, T{1}, target, n);
    target += n * depth;
  }
}

template <class T>
HWY_NOINLINE void pack_query(const Strided<T>& source, std::ptrdiff_t rows, std::ptrdiff_t depth,
                             T scale, T* HWY_RESTRICT target) noexcept {
  transpose(source, rows, depth, scale, target, kBlockRows);
}

template <class T>
HWY_NOINLINE bool pack_rows(const Strided<T>& source, std::ptrdiff_t rows, std::ptrdiff_t width,
                            std::ptrdiff_t panel_rows, T* HWY_RESTRICT target) noexcept {
  const Full<T> d;
  using V = hn::Vec<Full<T>>;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  const std::ptrdiff_t n = 2 * lanes;
  // x·0 is 0 for finite x and NaN else.
  V finite = hn::Zero(d);
  T finite_rest = 0;
  // Row by row, as they lie in memory.
  for (std::ptrdiff_t row = 0; row < rows; ++row) {
    const T* HWY_RESTRICT from = source.data + row * source.row;
    if (source.column == 1) read_row_ahead(from + kRowsAhead * source.row, width);
    T* HWY_RESTRICT to = target + row * n;
    for (std::ptrdiff_t first = 0; first < width; first += n, to += n * panel_rows) {
      const std::ptrdiff_t here = width - first < n ? width - first : n;
      if (here == n && source.column == 1) {
        const V x0 = hn::LoadU(d, from + first);
        const V x1 = hn::LoadU(d, from + first + lanes);
        finite = hn::MulAdd(x0, hn::Zero(d), finite);
        finite = hn::MulAdd(x1, hn::Zero(d), finite);
        hn::Store(x0, d, to);
        hn::Store(x1, d, to + lanes);
        continue;
      }
      for (std::ptrdiff_t j = 0; j < here; ++j) {
        to[j] = from[(first + j) * source.column];
        finite_rest += to[j] * 0;
      }
      std::fill(to + here, to + n, T{0});
    }
  }
  return hn::AllTrue(d, hn::Eq(finite, hn::Zero(d))) && finite_rest == 0;
}

}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // QKV_KERNELS_PACK_INL_H_
