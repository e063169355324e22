// The one inner product of the engine: a block of rows times a panel. Included once for every SIMD target.
#if defined(QKV_KERNELS_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_PRODUCT_INL_H_
#undef QKV_KERNELS_PRODUCT_INL_H_
#else
#define QKV_KERNELS_PRODUCT_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "kernels/kernel_table.h"
#include "qkv/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using Full = hn::ScalableTag<T>;

/// Rows of a block: with 32 vector registers 24 accumulators hide the latency of the multiply-adds, with 16 there is
/// room for 12.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
inline constexpr int kBlockRows = 12;
#else
inline constexpr int kBlockRows = 6;
#endif

/// What becomes of the sums.
enum class Into : unsigned char {
  Set,   ///< c = Σ
  Add,   ///< c = c + Σ
  Fold,  ///< c = decay·c + gain·Σ, by row
};

template <class T>
struct Target2D {
  T* data;
  std::ptrdiff_t row;
  const T* decay = nullptr;
  const T* gain = nullptr;
};

/// A vector of numbers stored as they are or in 16 bits, aligned or not.
template <class D>
HWY_INLINE hn::Vec<D> load_panel(D d, const hn::TFromD<D>* HWY_RESTRICT from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> load_panel(D d, const Float16* HWY_RESTRICT from) {
  const hn::Rebind<std::uint16_t, D> bits;
  const hn::Rebind<hwy::float16_t, D> halves;
  const auto* raw = reinterpret_cast<const std::uint16_t*>(from);
  return hn::PromoteTo(d, hn::BitCast(halves, hn::LoadU(bits, raw)));
}
template <class D>
HWY_INLINE hn::Vec<D> load_panel(D d, const BFloat16* HWY_RESTRICT from) {
  const hn::Rebind<std::uint16_t, D> bits;
  const hn::Rebind<hwy::bfloat16_t, D> halves;
  const auto* raw = reinterpret_cast<const std::uint16_t*>(from);
  return hn::PromoteTo(d, hn::BitCast(halves, hn::LoadU(bits, raw)));
}

/// The right operand of a product: rows of two vectors, `step` elements apart.
template <class E>
struct Panel {
  const E* data;
  std::ptrdiff_t step;
};

/// A packed one, of E for arithmetic in T.
template <class T, class E>
HWY_INLINE Panel<E> packed_panel(const E* data) {
  return {data, static_cast<std::ptrdiff_t>(2 * hn::Lanes(Full<T>()))};
}

/// Few rows wait for memory, above all in decode: asks for what lies 8 KiB on, where the processor's own prefetching, which ends
/// with a page, does not reach. Many rows pay nothing for it.
template <class E>
HWY_INLINE void read_ahead(const E* b, std::size_t count) {
  constexpr std::size_t kAhead = 8192 / sizeof(E);
  constexpr std::size_t kLine = 64 / sizeof(E);
  for (std::size_t i = 0; i < count; i += kLine) hwy::Prefetch(b + kAhead + i);
}

/// sum[i] += a[i·row_step]·b.
template <int R, class D, class E, class V>
HWY_INLINE void add_row(D d, const hn::TFromD<D>* HWY_RESTRICT a, std::ptrdiff_t row_step,
                        const E* HWY_RESTRICT b, V (&sum)[static_cast<std::size_t>(R)][2]) {
  read_ahead(b, 2 * hn::MaxLanes(d));
  const V b0 = load_panel(d, b);
  const V b1 = load_panel(d, b + hn::Lanes(d));
  HWY_UNROLL(16)
  for (int i = 0; i < R; ++i) {
    const V x = hn::Set(d, a[i * row_step]);
    sum[i][0] = hn::MulAdd(x, b0, sum[i][0]);
    sum[i][1] = hn::MulAdd(x, b1, sum[i][1]);
  }
}

/// c[i][j] ← Σ_k a[i·RowStep + k·depth_step]·b[k][j] for i < R and the two vectors of columns j. Each sum runs over k
/// in order, whatever R is.
template <Into into, int R, class T, class E>
HWY_INLINE void product(const T* HWY_RESTRICT a, std::ptrdiff_t row_step, std::ptrdiff_t depth_step,
                        const Panel<E>& panel, std::ptrdiff_t depth, const Target2D<T>& c) {
  const Full<T> d;
  using V = hn::Vec<Full<T>>;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  V sum[static_cast<std::size_t>(R)][2];
  for (int i = 0; i < R; ++i) sum[i][0] = sum[i][1] = hn::Zero(d);

  const E* HWY_RESTRICT b = panel.data;
  const std::ptrdiff_t step = panel.step;
  std::ptrdiff_t k = 0;
  for (; k + 4 <= depth; k += 4) {
    HWY_UNROLL(4)
    for (int u = 0; u < 4; ++u, a += depth_step, b += step) add_row<R>(d, a, row_step, b, sum);
  }
  for (; k < depth; ++k, a += depth_step, b += step) add_row<R>(d, a, row_step, b, sum);

  HWY_UNROLL(16)
  for (int i = 0; i < R; ++i) {
    T* HWY_RESTRICT target = c.data + i * c.row;
    if constexpr (into == Into::Add) {
      sum[i][0] = hn::Add(hn::LoadU(d, target), sum[i][0]);
      sum[i][1] = hn::Add(hn::LoadU(d, target + lanes), sum[i][1]);
    } else if constexpr (into == Into::Fold) {
      const V decay = hn::Set(d, c.decay[i]);
      const V gain = hn::Set(d, c.gain[i]);
      sum[i][0] = hn::MulAdd(sum[i][0], gain, hn::Mul(hn::Load(d, target), decay));
      sum[i][1] = hn::MulAdd(sum[i][1], gain, hn::Mul(hn::Load(d, target + lanes), decay));
    }
    hn::StoreU(sum[i][0], d, target);
    hn::StoreU(sum[i][1], d, target + lanes);
  }
}

/// Calls body(number) with the smallest compiled number of rows that holds `rows`.
template <class Body>
HWY_INLINE void with_rows(std::int32_t rows, const Body& body) {
  if (rows <= 1) {
    body(std::integral_constant<int, 1>());
  } else if (rows <= 2) {
    body(std::integral_constant<int, 2>());
  } else if (rows <= 4) {
    body(std::integral_constant<int, 4>());
  } else if (kBlockRows > 6 && rows <= 8) {
    body(std::integral_constant<int, 8>());
  } else {
    body(std::integral_constant<int, kBlockRows>());
  }
}

template <class T>
HWY_NOINLINE void multiply_block(const Rows<T>& rows, const T* panel, std::ptrdiff_t count,
                                 std::ptrdiff_t depth, T* sums, std::ptrdiff_t step,
                                 bool add) noexcept {
  if (add && count == kBlockRows) {
    product<Into::Add, kBlockRows>(rows.data, 1, rows.depth, packed_panel<T>(panel), depth,
                                   Target2D<T>{sums, step});
    return;
  }
  with_rows(static_cast<std::int32_t>(count), [&](auto compiled) HWY_ATTR {
    product<Into::Set, decltype(compiled)::value>(rows.data, 1, rows.depth, packed_panel<T>(panel),
                                                  depth, Target2D<T>{sums, step});
  });
}

}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // QKV_KERNELS_PRODUCT_INL_H_
