// Sums of tensors of one shape.
#pragma once

#include <algorithm>
#include <functional>

#include "qkv/tensor.h"

namespace qkv {

/// to += from.
template <class T, int Rank>
void add(const Tensor<T, Rank>& from, Tensor<T, Rank>& to) {
  std::transform(to.data(), to.data() + to.elements().size(), from.data(), to.data(),
                 std::plus<T>());
}

}  // namespace qkv
