#include "qkv/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>

namespace qkv {
namespace {

/// a * b for a, b >= 0, or nothing where it overflows.
std::optional<Index> multiply(Index a, Index b) {
  if (b != 0 && a > std::numeric_limits<Index>::max() / b) return std::nullopt;
  return a * b;
}

}  // namespace

std::string to_string(std::span<const Index> extents) {
  return fmt::format("[{}]", fmt::join(extents, ", "));
}

Index element_count(std::span<const Index> shape) {
  bool empty = false;
  for (const Index extent : shape) {
    if (extent < 0) {
      throw std::invalid_argument(
          fmt::format("tensor: shape: expected extents of 0 or more, got {}", to_string(shape)));
    }
    empty = empty || extent == 0;
  }
  Index count = 1;
  for (const Index extent : shape) {
    const auto product = multiply(count, extent == 0 ? 1 : extent);
    if (!product) {
      throw std::invalid_argument(fmt::format(
          "tensor: shape: expected a product of extents below 2^63, got {}", to_string(shape)));
    }
    count = *product;
  }
  return empty ? 0 : count;
}

void row_major_strides(std::span<const Index> shape, std::span<Index> strides) {
  element_count(shape);
  Index stride = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = stride;
    stride *= std::max<Index>(shape[axis], 1);
  }
}

bool is_contiguous(std::span<const Index> shape, std::span<const Index> strides) {
  for (const Index extent : shape) {
    if (extent == 0) return true;
  }
  Index expected = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    if (shape[axis] == 1) continue;
    if (strides[axis] != expected) return false;
    expected *= shape[axis];
  }
  return true;
}

std::optional<std::vector<Index>> view_strides(std::span<const Index> shape,
                                               std::span<const Index> strides,
                                               std::span<const Index> target) {
  if (element_count(shape) != element_count(target)) return std::nullopt;
  std::vector<Index> result(target.size());
  if (element_count(shape) == 0) {
    row_major_strides(target, result);
    return result;
  }
  // Walk both shapes from the innermost axis. A run of source axes that lie back to back in memory is
  // one block, which the target may cut into axes as it likes; a target axis that spans two blocks
  // has no stride.
  std::size_t next_target = target.size();
  Index block = 1;   // elements of the current block
  Index placed = 1;  // elements of it that target axes already cover
  Index inner_stride = strides.empty() ? 1 : strides.back();
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    block *= shape[axis];
    const bool ends_block =
        axis == 0 || (shape[axis - 1] != 1 && strides[axis - 1] != block * inner_stride);
    if (!ends_block) continue;
    while (next_target > 0 && (placed < block || target[next_target - 1] == 1)) {
      --next_target;
      result[next_target] = placed * inner_stride;
      placed *= target[next_target];
    }
    if (placed != block) return std::nullopt;
    if (axis > 0) {
      block = placed = 1;
      inner_stride = strides[axis - 1];
    }
  }
  while (next_target > 0) {  // only extents of 1 are left
    --next_target;
    result[next_target] = placed * inner_stride;
  }
  return result;
}

namespace detail {

void throw_bad_slice(int axis, Index begin, Index end, std::span<const Index> shape) {
  throw std::invalid_argument(
      fmt::format("slice: range: expected 0 <= begin <= end <= extent of an axis of {}, got axis "
                  "{}, range [{}, {})",
                  to_string(shape), axis, begin, end));
}

void throw_bad_split(Index width, Index heads) {
  throw std::invalid_argument(fmt::format(
      "split_heads: heads: expected a positive divisor of the width {}, got {}", width, heads));
}

void throw_bad_view(std::span<const Index> shape, std::span<const Index> strides,
                    std::span<const Index> target) {
  throw std::invalid_argument(
      fmt::format("view_as: shape: expected a shape that strides {} of {} can address without a "
                  "copy, got {}; copy first (contiguous_copy)",
                  to_string(strides), to_string(shape), to_string(target)));
}

}  // namespace detail
}  // namespace qkv
