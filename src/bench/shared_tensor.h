// Tensors handed to peers where they lie.
#pragma once

#include <memory>
#include <span>

#include "qkv/io.h"

namespace qkv::bench {

/// The same memory; whoever made `tensor` keeps it.
template <class T, int Rank>
StoredTensor shared(const Tensor<T, Rank>& tensor) {
  return {dtype_of<T>,
          {tensor.shape().begin(), tensor.shape().end()},
          std::as_bytes(tensor.elements()),
          nullptr};
}

}  // namespace qkv::bench
