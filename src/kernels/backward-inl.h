// Gradients of a block of queries and a block of keys. Included once for every SIMD target.
#if defined(QKV_KERNELS_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_BACKWARD_INL_H_
#undef QKV_KERNELS_BACKWARD_INL_H_
#else
#define QKV_KERNELS_BACKWARD_INL_H_
#endif

#include <hwy/highway.h>
#include "kernels/exp2-inl.h"
#include "kernels/forward-inl.h"
#include "kernels/kernel_table.h"
#include "kernels/product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// slopes ← 1 − tanh²(product / softcap), the derivative of softcap·tanh(product / softcap).
template <class T>
HWY_NOINLINE void softcap_slopes(const Block<T>& block, const PanelRange& panels,
                                 T* HWY_RESTRICT slopes) {
  const Full<T> d;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  const auto inverse = hn::Set(d, 1 / block.modifiers.softcap);
  for (int row = 0; row < block.rows; ++row) {
    const T* HWY_RESTRICT products = block.scores + row * kScoreStride;
    T* HWY_RESTRICT target = slopes + row * kScoreStride;
    for (std::ptrdiff_t j = panels.begin; j < panels.end; j += lanes) {
      const auto tanh = tanh_of(d, hn::Mul(hn::Load(d, products + j), inverse));
      hn::Store(hn::NegMulAdd(tanh, tanh, hn::Set(d, T{1})), d, target + j);
    }
  }
}

/// scores ← weights, gradient ← weight·(gradient − delta)·slope for one row.
template <bool kScaled, class T>
HWY_INLINE void differentiate_row(const GradientBlock<T>& work, int row, const PanelRange& panels) {
  const Full<T> d;
  using V = hn::Vec<Full<T>>;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  T* HWY_RESTRICT weights = work.block.scores + row * kScoreStride;
  T* HWY_RESTRICT gradient = work.score_gradient + row * kScoreStride;
  const V shift = hn::Set(d, reference_of(work.log_sum_exp[row]));
  const V base = hn::Set(d, work.block.base);
  const V delta = hn::Set(d, work.delta[row]);
  const V scale = hn::Set(d, work.scale);
  for (std::ptrdiff_t j = panels.begin; j < panels.end; j += lanes) {
    V x = hn::Sub(hn::Load(d, weights + j), shift);
    if constexpr (kScaled) x = hn::Mul(x, base);
    const V p = exp2_of(d, x);
    hn::Store(p, d, weights + j);
    const V ds = hn::Mul(p, hn::Sub(hn::Load(d, gradient + j), delta));
    if (work.bias_gradient != nullptr) {
      hn::Store(ds, d, work.bias_gradient + row * kScoreStride + j);
    }
    V by_product = hn::Mul(ds, scale);
    if (kScaled && work.block.modifiers.softcap != 0) {
      by_product = hn::Mul(by_product, hn::Load(d, work.slopes + row * kScoreStride + j));
    }
    hn::Store(by_product, d, gradient + j);
  }
}

template <class T>
HWY_NOINLINE void differentiate(const GradientBlock<T>& work) noexcept {
  const Block<T>& block = work.block;
  const PanelRange panels = panels_of<T>(block.visibility);
  match(block.rows, block.depth, block.query, block.keys, panels, block.scores);
  if (block.modifiers.softcap != 0) softcap_slopes(block, panels, work.slopes);
  modify(block, panels);
  match(block.rows, work.value_width, work.gradient, work.values, panels, work.score_gradient);

  const bool ragged = is_ragged(block.visibility, panels);
  for (int row = 0; row < block.rows; ++row) {
    T* weights = block.scores + row * kScoreStride;
    T* gradient = work.score_gradient + row * kScoreStride;
    // A dropped weight passes no gradient on; the upstream gradient of the weights is that of those before dropout.
    const bool drops = block.dropout.threshold != 0;
    if (drops) drop(block.dropout, row, panels, gradient);
    if (work.weights_gradient != nullptr) {
      const T* HWY_RESTRICT upstream = work.weights_gradient[row];
      for (std::int32_t j = block.visibility.begin; j < block.visibility.end; ++j) {
        gradient[j] += upstream[j];
      }
    }
    if (block.base == 1) {
      differentiate_row<false>(work, row, panels);
    } else {
      differentiate_row<true>(work, row, panels);
    }
    if (drops) drop(block.dropout, row, panels, weights);
    // Garbage at hidden places has not reached anything yet; here it ends.
    const auto clear = [&](T* target) HWY_ATTR {
      if (ragged) set_hidden(block.visibility, row, panels, T{0}, target);
      std::fill(target, target + panels.begin, T{0});
      std::fill(target + panels.end, target + kGradientKeys, T{0});
    };
    clear(weights);
    clear(gradient);
    if (work.bias_gradient != nullptr) clear(work.bias_gradient + row * kScoreStride);
  }
}

/// As product with Into::Add for one row of sums, leaving out the pairs that `visible` says are hidden: 0·∞ would be NaN.
template <class T>
HWY_INLINE void add_visible(const T* HWY_RESTRICT a, std::ptrdiff_t a_step,
                            const std::uint8_t* HWY_RESTRICT visible, std::ptrdiff_t visible_step,
                            const T* HWY_RESTRICT b, std::ptrdiff_t depth, T* HWY_RESTRICT c) {
  const Full<T> d;
  using V = hn::Vec<Full<T>>;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  V sum0 = hn::Zero(d);
  V sum1 = hn::Zero(d);
  for (std::ptrdiff_t k = 0; k < depth; ++k) {
    if (visible[k * visible_step] == 0) continue;
    const V x = hn::Set(d, a[k * a_step]);
    sum0 = hn::MulAdd(x, hn::Load(d, b + k * 2 * lanes), sum0);
    sum1 = hn::MulAdd(x, hn::Load(d, b + k * 2 * lanes + lanes), sum1);
  }
  hn::Store(hn::Add(hn::Load(d, c), sum0), d, c);
  hn::Store(hn::Add(hn::Load(d, c + lanes), sum1), d, c + lanes);
}

template <class T>
HWY_NOINLINE void gather_visible(const GradientTile<T>& tile) {
  const auto n = static_cast<std::ptrdiff_t>(2 * hn::Lanes(Full<T>()));
  const std::ptrdiff_t rows = tile.row_end - tile.row_begin;
  const std::ptrdiff_t keys = tile.key_end - tile.key_begin;
  const std::ptrdiff_t first = tile.row_begin * kScoreStride;
  const auto by_key = [&](const T* a, const T* b, std::ptrdiff_t columns, T* c) HWY_ATTR {
    for (std::ptrdiff_t key = tile.key_begin; key < tile.key_end; ++key) {
      for (std::ptrdiff_t column = 0; column < columns; column += n) {
        add_visible(a + first + key, kScoreStride,
                    tile.visible + tile.row_begin * kGradientKeys + key, kGradientKeys,
                    b + column * kGradientRows + tile.row_begin * n, rows,
                    c + key * columns + column);
      }
    }
  };
  by_key(tile.weights, tile.gradient_rows, tile.value_columns, tile.value_gradient);
  by_key(tile.score_gradient, tile.query_rows, tile.depth_columns, tile.key_gradient);
  for (std::ptrdiff_t row = tile.row_begin; row < tile.row_end; ++row) {
    for (std::ptrdiff_t column = 0; column < tile.depth_columns; column += n) {
      add_visible(tile.score_gradient + row * kScoreStride + tile.key_begin, 1,
                  tile.visible + row * kGradientKeys + tile.key_begin, 1,
                  tile.key_rows + column * kGradientKeys + tile.key_begin * n, keys,
                  tile.query_gradient + row * tile.depth_columns + column);
    }
  }
}

template <class T>
HWY_NOINLINE void gather(const GradientTile<T>& tile) noexcept {
  if (tile.visible != nullptr) {
    gather_visible(tile);
    return;
  }
  const auto n = static_cast<std::ptrdiff_t>(2 * hn::Lanes(Full<T>()));
  const std::ptrdiff_t rows = tile.row_end - tile.row_begin;
  const std::ptrdiff_t first = tile.row_begin * kScoreStride;
  // Blocks of keys, each over all rows; kGradientKeys is a multiple of the block.
  const auto by_key = [&](const T* a, const T* b, std::ptrdiff_t columns, T* c) HWY_ATTR {
    for (std::ptrdiff_t column = 0; column < columns; column += n) {
      for (std::ptrdiff_t key = tile.key_begin / kBlockRows * kBlockRows; key < tile.key_end;
           key += kBlockRows) {
        product<Into::Add, kBlockRows>(
            a + first + key, 1, kScoreStride,
            packed_panel<T>(b + column * kGradientRows + tile.row_begin * n), rows,
            {c + key * columns + column, columns});
      }
    }
  };
  by_key(tile.weights, tile.gradient_rows, tile.value_columns, tile.value_gradient);
  by_key(tile.score_gradient, tile.query_rows, tile.depth_columns, tile.key_gradient);
  for (std::ptrdiff_t row = tile.row_begin; row < tile.row_end; row += kBlockRows) {
    const auto here = static_cast<std::int32_t>(tile.row_end - row);
    with_rows(here, [&](auto count) HWY_ATTR {
      for (std::ptrdiff_t column = 0; column < tile.depth_columns; column += n) {
        product<Into::Add, decltype(count)::value>(
            tile.score_gradient + row * kScoreStride + tile.key_begin, kScoreStride, 1,
            packed_panel<T>(tile.key_rows + column * kGradientKeys + tile.key_begin * n),
            tile.key_end - tile.key_begin,
            {tile.query_gradient + row * tile.depth_columns + column, tile.depth_columns});
      }
    });
  }
}

}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // QKV_KERNELS_BACKWARD_INL_H_
