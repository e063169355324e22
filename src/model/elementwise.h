// Sums of tensors of one shape.
#pragma once

#include "qkv/tensor.h"

namespace qkv {

/// to += from.
template <class T, int Rank>
void add(const Tensor<T, Rank>& from, Tensor<T, Rank>& to) {
  constexpr Index kWorthThreads = 1 << 16;
  const auto count = static_cast<Index>(to.elements().size());
  const T* source = from.data();
  T* target = to.data();
#pragma omp parallel for schedule(static) if (count >= kWorthThreads)
  for (Index i = 0; i < count; ++i) target[i] += source[i];
}

}  // namespace qkv
