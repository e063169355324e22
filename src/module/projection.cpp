#include "module/projection.h"

#include <algorithm>
#include <vector>

#include "engine/matrix_product.h"

namespace qkv {
namespace {

/// The elements from one token to the next, where the tokens of all samples are evenly spaced.
template <class T>
std::optional<Index> token_step(const TensorView<const T, 3>& view) {
  const auto [batch, tokens, width] = view.shape();
  if (batch > 1 && tokens > 1 && view.stride(0) != tokens * view.stride(1)) return std::nullopt;
  return tokens > 1 ? view.stride(1) : view.stride(0);
}

/// The tokens [B,T,W] as a matrix of B·T rows, copied only where the strides demand it.
template <class T>
class TokenRows {
 public:
  explicit TokenRows(const TensorView<const T, 3>& view) {
    rows_ = {view.data(), view.shape(0) * view.shape(1), view.shape(2), 0, view.stride(2)};
    if (const auto step = token_step(view)) {
      rows_.row_step = *step;
    } else {
      copy_.emplace(contiguous_copy(view));
      rows_.data = copy_->data();
      rows_.row_step = rows_.columns;
      rows_.column_step = 1;
    }
  }

  Index count() const noexcept { return rows_.rows; }
  Index width() const noexcept { return rows_.columns; }
  const engine::MatrixView<T>& matrix() const noexcept { return rows_; }
  T at(Index row, Index column) const noexcept {
    return rows_.data[row * rows_.row_step + column * rows_.column_step];
  }

 private:
  engine::MatrixView<T> rows_;
  std::optional<Tensor<T, 3>> copy_;
};

template <class T>
engine::MatrixView<T> matrix_of(const Tensor<T, 2>& tensor) {
  return {tensor.data(), tensor.shape(0), tensor.shape(1), tensor.shape(1), 1};
}

template <class T>
std::vector<Index> rows_that_are_not_finite(const TokenRows<T>& rows) {
  std::vector<Index> result;
  for (Index r = 0; r < rows.count(); ++r) {
    T sum = 0;  // of x·0: 0 for finite x and NaN else
    if (rows.matrix().column_step == 1) {
      const T* row = rows.matrix().data + r * rows.matrix().row_step;
#pragma omp simd reduction(+ : sum)
      for (Index i = 0; i < rows.width(); ++i) sum += row[i] * T{0};
    } else {
      for (Index i = 0; i < rows.width(); ++i) sum += rows.at(r, i) * T{0};
    }
    if (sum != 0) result.push_back(r);
  }
  return result;
}

/// A dense copy with some rows set to zero.
template <class T>
Tensor<T, 3> copy_without(const TensorView<const T, 3>& view, std::span<const Index> rows) {
  Tensor<T, 3> copy = contiguous_copy(view);
  const Index width = view.shape(2);
  for (const Index r : rows) std::fill_n(copy.data() + r * width, width, T{0});
  return copy;
}

/// gradient [out, in] = dyᵀ·x.
template <class T>
void multiply_transposed(const TokenRows<T>& dy, const TokenRows<T>& x, Tensor<T, 2>& gradient) {
  engine::multiply(dy.matrix().transposed(), x.matrix(), engine::Result::Replaced, gradient.data());
}

}  // namespace

template <class T>
void project(const TensorView<const T, 3>& input, const Tensor<T, 2>& weight,
             const std::optional<Tensor<T, 1>>& bias, Tensor<T, 3>& output) {
  const TokenRows<T> x(input);
  if (x.count() == 0) return;
  const Index out = weight.shape(0);
  if (bias) {
    constexpr Index kWorthThreads = 1 << 16;
#pragma omp parallel for schedule(static) if (x.count() * out >= kWorthThreads)
    for (Index r = 0; r < x.count(); ++r) std::copy_n(bias->data(), out, output.data() + r * out);
  }
  engine::multiply(x.matrix(), matrix_of(weight).transposed(),
                   bias ? engine::Result::AddedTo : engine::Result::Replaced, output.data());
}

template <class T>
void add_input_gradient(const TensorView<const T, 3>& output_gradient, const Tensor<T, 2>& weight,
                        Tensor<T, 3>& input_gradient) {
  const TokenRows<T> dy(output_gradient);
  if (dy.count() == 0) return;
  engine::multiply(dy.matrix(), matrix_of(weight), engine::Result::AddedTo, input_gradient.data());
}

template <class T>
Tensor<T, 2> weight_gradient(const TensorView<const T, 3>& output_gradient,
                             const TensorView<const T, 3>& input) {
  const Extents<2> shape{output_gradient.shape(2), input.shape(2)};
  const TokenRows<T> x(input);
  const TokenRows<T> dy(output_gradient);
  if (x.count() == 0) return Tensor<T, 2>(shape);
  auto gradient = Tensor<T, 2>::uninitialized(shape);
  const std::vector<Index> garbage = rows_that_are_not_finite(x);
  if (garbage.empty()) {
    multiply_transposed(dy, x, gradient);
    return gradient;
  }
  const Tensor<T, 3> finite_x = copy_without(input, garbage);
  const Tensor<T, 3> finite_dy = copy_without(output_gradient, garbage);
  multiply_transposed(TokenRows<T>(finite_dy.view()), TokenRows<T>(finite_x.view()), gradient);
  for (const Index r : garbage) {
    for (Index o = 0; o < dy.width(); ++o) {
      const T factor = dy.at(r, o);
      if (factor == T{0}) continue;
      for (Index i = 0; i < x.width(); ++i) gradient(o, i) += factor * x.at(r, i);
    }
  }
  return gradient;
}

template <class T>
Tensor<T, 1> bias_gradient(const TensorView<const T, 3>& output_gradient) {
  const TokenRows<T> dy(output_gradient);
  std::vector<double> sums(static_cast<std::size_t>(dy.width()), 0.0);
  for (Index r = 0; r < dy.count(); ++r) {
    for (std::size_t o = 0; o < sums.size(); ++o) {
      sums[o] += static_cast<double>(dy.at(r, static_cast<Index>(o)));
    }
  }
  Tensor<T, 1> gradient({dy.width()});
  std::transform(sums.begin(), sums.end(), gradient.data(),
                 [](double sum) { return static_cast<T>(sum); });
  return gradient;
}

#define QKV_INSTANTIATE_PROJECTION(T)                                                  \
  template void project(const TensorView<const T, 3>&, const Tensor<T, 2>&,            \
                        const std::optional<Tensor<T, 1>>&, Tensor<T, 3>&);            \
  template void add_input_gradient(const TensorView<const T, 3>&, const Tensor<T, 2>&, \
                                   Tensor<T, 3>&);                                     \
  template Tensor<T, 2> weight_gradient(const TensorView<const T, 3>&,                 \
                                        const TensorView<const T, 3>&);                \
  template Tensor<T, 1> bias_gradient(const TensorView<const T, 3>&);

QKV_INSTANTIATE_PROJECTION(double)
QKV_INSTANTIATE_PROJECTION(float)

#undef QKV_INSTANTIATE_PROJECTION

}  // namespace qkv
