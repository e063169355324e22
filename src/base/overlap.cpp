#include "base/overlap.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "base/few.h"

namespace qkv {
namespace {

/// An axis with more than one element, its stride made positive.
struct Axis {
  Index stride;
  Index extent;
};

/// Those of one view, or of two.
using Axes = Few<Axis, std::size_t{2} * kMostAxes>;

/// The bytes that a view lies within.
struct Range {
  std::intptr_t first = 0;
  std::intptr_t last = 0;  // one past
};

bool is_empty(const Footprint& view) {
  return std::find(view.shape.begin(), view.shape.end(), 0) != view.shape.end();
}

Range range_of(const Footprint& view) {
  const auto size = static_cast<Index>(view.element_size);
  Range range;
  range.first = range.last = reinterpret_cast<std::intptr_t>(view.data);
  for (std::size_t i = 0; i < view.shape.size(); ++i) {
    const Index reach = view.strides[i] * size * (view.shape[i] - 1);
    (reach < 0 ? range.first : range.last) += reach;
  }
  range.last += size;
  return range;
}

void sort_descending(Axes& axes) {
  std::sort(axes.begin(), axes.end(),
            [](const Axis& a, const Axis& b) { return a.stride > b.stride; });
}

/// Strides in bytes, descending.
Axes axes_of(const Footprint& view) {
  Axes axes;
  for (std::size_t i = 0; i < view.shape.size(); ++i) {
    if (view.shape[i] <= 1) continue;
    axes.push_back(
        {std::abs(view.strides[i]) * static_cast<Index>(view.element_size), view.shape[i]});
  }
  sort_descending(axes);
  return axes;
}

/// Bytes from the first element to one past the last, of the axes from `from` on.
Index span_of(const Axes& axes, std::size_t from, Index element_size) {
  Index span = element_size;
  for (std::size_t i = from; i < axes.size(); ++i) span += axes[i].stride * (axes[i].extent - 1);
  return span;
}

bool nests(const Axes& axes, Index element_size) {
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].stride < span_of(axes, i + 1, element_size)) return false;
  }
  return true;
}

/// Gives a view the axes (of extent 1) that only the other has, so that both can be walked together.
Axes with_axes_of(const Axes& own, const Axes& other) {
  Axes result = own;
  for (const Axis& axis : other) {
    const bool has = std::any_of(own.begin(), own.end(),
                                 [&](const Axis& mine) { return mine.stride == axis.stride; });
    if (!has) result.push_back({axis.stride, 1});
  }
  sort_descending(result);
  return result;
}

/// Whether some element of b, whose first byte lies `distance` bytes after that of a, meets one of a, over
/// the axes from `axis` on. With m the difference of the two indices on an axis, the rest must
/// bridge distance + m·stride, which at most two values of m can make small enough.
bool meets(const Axes& a, const Axes& b, std::size_t axis, Index distance, Index element_size) {
  if (axis == a.size()) return std::abs(distance) < element_size;
  const Index stride = a[axis].stride;
  const Index nearest = -distance / stride;
  for (Index m = nearest - 1; m <= nearest + 1; ++m) {
    if (m > b[axis].extent - 1 || m < -(a[axis].extent - 1)) continue;
    if (meets(a, b, axis + 1, distance + m * stride, element_size)) return true;
  }
  return false;
}

}  // namespace

bool overlaps_itself(const Footprint& view) {
  if (is_empty(view)) return false;
  return !nests(axes_of(view), static_cast<Index>(view.element_size));
}

bool overlap(const Footprint& a, const Footprint& b) {
  if (is_empty(a) || is_empty(b)) return false;
  const Range x = range_of(a);
  const Range y = range_of(b);
  if (x.last <= y.first || y.last <= x.first) return false;
  const auto size = static_cast<Index>(a.element_size);
  const Axes x_axes = axes_of(a);
  const Axes y_axes = axes_of(b);
  if (a.element_size != b.element_size || !nests(x_axes, size) || !nests(y_axes, size)) return true;
  const Axes own = with_axes_of(x_axes, y_axes);
  const Axes other = with_axes_of(y_axes, x_axes);
  if (!nests(own, size) || !nests(other, size)) return true;
  return meets(own, other, 0, y.first - x.first, size);
}

}  // namespace qkv
