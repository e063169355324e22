// Whether strided views share memory: outputs may not overlap inputs, each other or themselves.
#pragma once

#include <cstddef>
#include <span>

#include "qkv/tensor.h"

namespace qkv {

/// The bytes that a strided view addresses.
struct Footprint {
  const std::byte* data = nullptr;
  std::span<const Index> shape;
  std::span<const Index> strides;  // in elements
  std::size_t element_size = 0;
};

inline constexpr int kMostAxes = 6;

template <class T, int Rank>
requires(Rank <= kMostAxes) Footprint footprint(const TensorView<T, Rank>& view) {
  return {reinterpret_cast<const std::byte*>(view.data()), view.shape(), view.strides(), sizeof(T)};
}

/// True where two indices of the view address the same element. Strides that do not nest (an axis steps into
/// the span of another) count as overlapping.
bool overlaps_itself(const Footprint& view);

/// True where the views share a byte. Exact for views whose axes nest in one another's, as those of the slices of
/// one packed tensor do; other views whose address ranges meet count as overlapping.
bool overlap(const Footprint& a, const Footprint& b);

}  // namespace qkv
