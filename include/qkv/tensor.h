// Strided views and owned tensors of a rank known at compile time.
//
// Strides count elements, not bytes. A stride may be 0 (a broadcast axis) or negative in a view that is
// read; a view that is written must address every element once.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "qkv/dtype.h"

namespace qkv {

using Index = std::int64_t;

template <int Rank>
using Extents = std::array<Index, static_cast<std::size_t>(Rank)>;

/// Row-major strides of a shape: the last axis is dense. Throws std::invalid_argument on a negative
/// extent or where the product of the extents overflows.
void row_major_strides(std::span<const Index> shape, std::span<Index> strides);

/// Product of the extents; 1 for rank 0. Throws like row_major_strides.
Index element_count(std::span<const Index> shape);

/// True where the elements lie in row-major order without gaps (axes of extent 1 may have any stride).
bool is_contiguous(std::span<const Index> shape, std::span<const Index> strides);

/// The strides with which `target` addresses the same elements in the same order, or nothing where no
/// strides can (then the data must be copied). The rule is that of PyTorch's Tensor.view.
std::optional<std::vector<Index>> view_strides(std::span<const Index> shape,
                                               std::span<const Index> strides,
                                               std::span<const Index> target);

/// "[2, 4, 5, 16]".
std::string to_string(std::span<const Index> extents);

/// A non-owning view of Rank axes over elements of type T (const T for input).
template <class T, int Rank>
class TensorView {
 public:
  using Element = T;
  static constexpr int rank = Rank;

  TensorView() = default;

  /// Dense, row-major.
  TensorView(T* data, const Extents<Rank>& shape) : data_(data), shape_(shape) {
    row_major_strides(shape_, strides_);
  }

  TensorView(T* data, const Extents<Rank>& shape, const Extents<Rank>& strides)
      : data_(data), shape_(shape), strides_(strides) {}

  /// A writable view is readable.
  template <class U>
  requires(std::is_same_v<const U, T> && !std::is_const_v<U>)
      TensorView(const TensorView<U, Rank>& other)  // NOLINT(google-explicit-constructor)
      : data_(other.data()), shape_(other.shape()), strides_(other.strides()) {}

  T* data() const noexcept { return data_; }
  const Extents<Rank>& shape() const noexcept { return shape_; }
  const Extents<Rank>& strides() const noexcept { return strides_; }
  Index shape(int axis) const noexcept { return shape_[static_cast<std::size_t>(axis)]; }
  Index stride(int axis) const noexcept { return strides_[static_cast<std::size_t>(axis)]; }

  bool empty() const noexcept {
    for (const Index extent : shape_) {
      if (extent == 0) return true;
    }
    return false;
  }

  template <class... I>
  requires(sizeof...(I) == Rank) T& operator()(I... index) const noexcept {
    return data_[offset_of(Extents<Rank>{static_cast<Index>(index)...})];
  }

  /// The view with two axes exchanged; nothing is copied.
  TensorView transposed(int a, int b) const noexcept {
    TensorView result = *this;
    std::swap(result.shape_[static_cast<std::size_t>(a)],
              result.shape_[static_cast<std::size_t>(b)]);
    std::swap(result.strides_[static_cast<std::size_t>(a)],
              result.strides_[static_cast<std::size_t>(b)]);
    return result;
  }

  /// Elements [begin, end) of one axis; nothing is copied. Throws where the range leaves the axis.
  TensorView slice(int axis, Index begin, Index end) const;

  bool contiguous() const noexcept { return is_contiguous(shape_, strides_); }

 private:
  std::ptrdiff_t offset_of(const Extents<Rank>& index) const noexcept {
    std::ptrdiff_t offset = 0;
    for (std::size_t axis = 0; axis < index.size(); ++axis) offset += index[axis] * strides_[axis];
    return offset;
  }

  T* data_ = nullptr;
  Extents<Rank> shape_{};
  Extents<Rank> strides_{};
};

/// An owned, row-major tensor; new elements are zero. Copying copies the elements. Throws std::invalid_argument where
/// the product of the extents overflows, std::bad_alloc where memory is short.
template <class T, int Rank>
class Tensor {
 public:
  Tensor() : Tensor(Extents<Rank>{}) {}
  explicit Tensor(const Extents<Rank>& shape)
      : shape_(shape),
        size_(static_cast<std::size_t>(element_count(shape))),
        data_(allocate(size_, true)) {
    row_major_strides(shape_, strides_);
  }
  /// Elements that hold anything until they are written.
  static Tensor uninitialized(const Extents<Rank>& shape) {
    return Tensor(shape, [](std::size_t size) { return allocate(size, false); });
  }
  Tensor(const Tensor& other) : Tensor(other.shape_) { std::copy_n(other.data(), size_, data()); }
  Tensor(Tensor&& other) noexcept
      : shape_(std::exchange(other.shape_, {})),
        strides_(std::exchange(other.strides_, {})),
        size_(std::exchange(other.size_, 0)),
        data_(std::move(other.data_)) {}
  Tensor& operator=(Tensor other) noexcept {
    std::swap(shape_, other.shape_);
    std::swap(strides_, other.strides_);
    std::swap(size_, other.size_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~Tensor() = default;

  TensorView<T, Rank> view() noexcept { return {data(), shape_, strides_}; }
  TensorView<const T, Rank> view() const noexcept { return {data(), shape_, strides_}; }

  const Extents<Rank>& shape() const noexcept { return shape_; }
  Index shape(int axis) const noexcept { return shape_[static_cast<std::size_t>(axis)]; }
  T* data() noexcept { return data_.get(); }
  const T* data() const noexcept { return data_.get(); }
  std::span<T> elements() noexcept { return {data(), size_}; }
  std::span<const T> elements() const noexcept { return {data(), size_}; }

  template <class... I>
  requires(sizeof...(I) == Rank) T& operator()(I... index) noexcept { return view()(index...); }
  template <class... I>
  requires(sizeof...(I) == Rank) const T& operator()(I... index) const noexcept {
    return view()(index...);
  }

 private:
  template <class Allocate>
  Tensor(const Extents<Rank>& shape, Allocate allocate_elements)
      : shape_(shape),
        size_(static_cast<std::size_t>(element_count(shape))),
        data_(allocate_elements(size_)) {
    row_major_strides(shape_, strides_);
  }

  static std::unique_ptr<T[]> allocate(std::size_t size, bool zeroed) {
    if (size > PTRDIFF_MAX / sizeof(T)) throw std::bad_alloc();
    return zeroed ? std::make_unique<T[]>(size) : std::make_unique_for_overwrite<T[]>(size);
  }

  Extents<Rank> shape_{};
  Extents<Rank> strides_{};
  std::size_t size_ = 0;
  std::unique_ptr<T[]> data_;
};

/// [B,T,H*D] → [B,H,T,D], a view: column h*D + d of a token becomes element d of head h.
/// Throws std::invalid_argument where `heads` does not divide the width.
template <class T>
TensorView<T, 4> split_heads(const TensorView<T, 3>& merged, Index heads);

/// [B,H,T,D] → [B,T,H*D], a copy: after the transpose no strides can merge H and D.
template <class T>
Tensor<std::remove_const_t<T>, 3> merge_heads(const TensorView<T, 4>& split);

/// The same elements in row-major order, copied.
template <class T, int Rank>
Tensor<std::remove_const_t<T>, Rank> contiguous_copy(const TensorView<T, Rank>& source);

/// Reads through another shape without copying, as PyTorch's Tensor.view does; throws
/// std::invalid_argument where the strides do not allow it (copy first: contiguous_copy).
template <int TargetRank, class T, int Rank>
TensorView<T, TargetRank> view_as(const TensorView<T, Rank>& source,
                                  const Extents<TargetRank>& shape);

namespace detail {

[[noreturn]] void throw_bad_slice(int axis, Index begin, Index end, std::span<const Index> shape);
[[noreturn]] void throw_bad_split(Index width, Index heads);
[[noreturn]] void throw_bad_view(std::span<const Index> shape, std::span<const Index> strides,
                                 std::span<const Index> target);

/// Calls visit(offset in the source) for each element in row-major order.
template <class Visit>
void for_each_offset(std::span<const Index> shape, std::span<const Index> strides, Visit visit,
                     std::ptrdiff_t offset = 0) {
  if (shape.empty()) {
    visit(offset);
    return;
  }
  // An empty axis may lie inside of a very long one.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return;
  for (Index i = 0; i < shape[0]; ++i) {
    for_each_offset(shape.subspan(1), strides.subspan(1), visit, offset + i * strides[0]);
  }
}

}  // namespace detail

template <class T, int Rank>
TensorView<T, Rank> TensorView<T, Rank>::slice(int axis, Index begin, Index end) const {
  if (axis < 0 || axis >= Rank || begin < 0 || begin > end || end > shape(axis)) {
    detail::throw_bad_slice(axis, begin, end, shape_);
  }
  TensorView result = *this;
  result.shape_[static_cast<std::size_t>(axis)] = end - begin;
  if (data_ != nullptr && end > begin) result.data_ = data_ + begin * stride(axis);
  return result;
}

template <class T>
TensorView<T, 4> split_heads(const TensorView<T, 3>& merged, Index heads) {
  const Index width = merged.shape(2);
  if (heads <= 0 || width % heads != 0) detail::throw_bad_split(width, heads);
  const Index head_width = width / heads;
  return {merged.data(),
          {merged.shape(0), heads, merged.shape(1), head_width},
          {merged.stride(0), head_width * merged.stride(2), merged.stride(1), merged.stride(2)}};
}

template <class T, int Rank>
Tensor<std::remove_const_t<T>, Rank> contiguous_copy(const TensorView<T, Rank>& source) {
  auto result = Tensor<std::remove_const_t<T>, Rank>::uninitialized(source.shape());
  auto* next = result.data();
  detail::for_each_offset(source.shape(), source.strides(),
                          [&](std::ptrdiff_t offset) { *next++ = source.data()[offset]; });
  return result;
}

template <class T>
Tensor<std::remove_const_t<T>, 3> merge_heads(const TensorView<T, 4>& split) {
  const auto [batch, heads, tokens, width] = split.shape();
  auto merged = Tensor<std::remove_const_t<T>, 3>::uninitialized({batch, tokens, heads * width});
  auto* next = merged.data();
  const TensorView<T, 4> token_major = split.transposed(1, 2);
  detail::for_each_offset(token_major.shape(), token_major.strides(),
                          [&](std::ptrdiff_t offset) { *next++ = split.data()[offset]; });
  return merged;
}

template <int TargetRank, class T, int Rank>
TensorView<T, TargetRank> view_as(const TensorView<T, Rank>& source,
                                  const Extents<TargetRank>& shape) {
  const auto strides = view_strides(source.shape(), source.strides(), shape);
  if (!strides) detail::throw_bad_view(source.shape(), source.strides(), shape);
  Extents<TargetRank> target_strides{};
  std::copy(strides->begin(), strides->end(), target_strides.begin());
  return {source.data(), shape, target_strides};
}

}  // namespace qkv
