// Copies operands into the layouts of the inner kernel. Included once for every SIMD target.
#if defined(QKV_KERNELS_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_PACK_INL_H_
#undef QKV_KERNELS_PACK_INL_H_
#else
#define QKV_KERNELS_PACK_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>
#include "kernels/kernel_table.h"
#include "kernels/product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// How far ahead rows are asked for: their short runs give the processor's own prefetching little to go by.
inline constexpr std::ptrdiff_t kRowsAhead = 16;

template <class T>
HWY_INLINE void read_ahead(const T* row, std::ptrdiff_t width) {
  constexpr std::ptrdiff_t kLine = 64 / sizeof(T);
  for (std::ptrdiff_t k = 0; k < width; k += kLine) hwy::Prefetch(row + k);
}

/// target[k·step + i] = scale·source[i][k], for i < rows and k < depth.
template <class T>
HWY_INLINE void transpose(const Strided<T>& source, std::ptrdiff_t rows, std::ptrdiff_t depth,
                          T scale, T* HWY_RESTRICT target, std::ptrdiff_t step) {
  std::ptrdiff_t first = 0;
#if HWY_TARGET != HWY_SCALAR
  // Squares of 16 bytes a side: 4×4 or 2×2 elements.
  constexpr std::ptrdiff_t kSide = 16 / sizeof(T);
  if (source.column == 1) {
    const hn::FixedTag<T, kSide> d;
    using V = hn::Vec<decltype(d)>;
    const V factor = hn::Set(d, scale);
    for (; first + kSide <= rows; first += kSide) {
      const T* HWY_RESTRICT from = source.data + first * source.row;
      for (std::ptrdiff_t i = 0; i < kSide; ++i) {
        read_ahead(from + (kRowsAhead + i) * source.row, depth);
      }
      std::ptrdiff_t k = 0;
      for (; k + kSide <= depth; k += kSide) {
        T* HWY_RESTRICT to = target + k * step + first;
        if constexpr (kSide == 4) {
          const hn::Repartition<double, decltype(d)> pairs;
          const V r0 = hn::LoadU(d, from + k);
          const V r1 = hn::LoadU(d, from + source.row + k);
          const V r2 = hn::LoadU(d, from + 2 * source.row + k);
          const V r3 = hn::LoadU(d, from + 3 * source.row + k);
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
          const V r0 = hn::LoadU(d, from + k);
          const V r1 = hn::LoadU(d, from + source.row + k);
          hn::StoreU(hn::Mul(hn::InterleaveLower(d, r0, r1), factor), d, to);
          hn::StoreU(hn::Mul(hn::InterleaveUpper(d, r0, r1), factor), d, to + step);
        }
      }
      for (; k < depth; ++k) {
        for (std::ptrdiff_t i = 0; i < kSide; ++i) {
          target[k * step + first + i] = scale * from[i * source.row + k];
        }
      }
    }
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
    const std::ptrdiff_t here = keys - first < n ? keys - first : n;
    if (here < n) std::fill_n(target, n * depth, T{0});
    transpose<T>({source.data + first * source.row, source.row, source.column}, here, depth, T{1},
                 target, n);
    target += n * depth;
  }
}

template <class T>
HWY_NOINLINE void pack_query(const Strided<T>& source, std::ptrdiff_t rows, std::ptrdiff_t depth,
                             T scale, T* HWY_RESTRICT target) noexcept {
  if (rows < kBlockRows) std::fill_n(target, kBlockRows * depth, T{0});
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
    if (source.column == 1) read_ahead(from + kRowsAhead * source.row, width);
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
