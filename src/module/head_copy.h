// Copies of heads on all cores: for what tensor.h does one element at a time.
#pragma once

#include <algorithm>

#include "qkv/tensor.h"

namespace qkv {

/// [B,H,T,D] to [B,H,T,D], any strides.
template <class T>
void copy_heads(const TensorView<const T, 4>& from, const TensorView<T, 4>& to) {
  constexpr Index kWorthAThread = 1 << 16;
  const auto [batch, heads, tokens, width] = from.shape();
  const Index rows = batch * heads * tokens;
  const Index head_count = heads;  // structured bindings do not go into parallel regions
  const Index token_count = tokens;
  const Index row_width = width;
#pragma omp parallel for schedule(static) if (rows * row_width > kWorthAThread)
  for (Index row = 0; row < rows; ++row) {
    const Index t = row % token_count;
    const Index h = row / token_count % head_count;
    const Index b = row / token_count / head_count;
    const T* source = from.data() + b * from.stride(0) + h * from.stride(1) + t * from.stride(2);
    T* target = to.data() + b * to.stride(0) + h * to.stride(1) + t * to.stride(2);
    if (from.stride(3) == 1 && to.stride(3) == 1) {
      std::copy_n(source, row_width, target);
    } else {
      for (Index d = 0; d < row_width; ++d) target[d * to.stride(3)] = source[d * from.stride(3)];
    }
  }
}

}  // namespace qkv
