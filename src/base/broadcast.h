// Reading and writing tensors whose axes may broadcast.
#pragma once

#include "qkv/tensor.h"

namespace qkv {

/// The index into an axis that serves `index`: an axis of extent 1 serves every index.
constexpr Index broadcast_index(Index extent, Index index) noexcept {
  return extent == 1 ? 0 : index;
}

/// The element of a tensor that broadcasts to [B,H,T,S].
template <class T>
T& broadcast_at(const TensorView<T, 4>& view, Index b, Index h, Index t, Index s) noexcept {
  return view(broadcast_index(view.shape(0), b), broadcast_index(view.shape(1), h),
              broadcast_index(view.shape(2), t), broadcast_index(view.shape(3), s));
}

}  // namespace qkv
