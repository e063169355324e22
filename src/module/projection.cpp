#include "module/projection.h"

#include <cblas.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

namespace qkv {
namespace {

constexpr Index kLargestBlasInt = std::numeric_limits<blasint>::max();

blasint blas_int(Index value) { return static_cast<blasint>(value); }

/// The elements that one row of `rows` steps over, where the tokens of all samples are evenly spaced rows of
/// dense elements that BLAS can address; nothing otherwise.
template <class T>
std::optional<Index> leading_dimension(const TensorView<const T, 3>& view) {
  const auto [batch, tokens, width] = view.shape();
  if (width > 1 && view.stride(2) != 1) return std::nullopt;
  if (batch > 1 && tokens > 1 && view.stride(0) != tokens * view.stride(1)) return std::nullopt;
  Index leading = width;
  if (tokens > 1) {
    leading = view.stride(1);
  } else if (batch > 1) {
    leading = view.stride(0);
  }
  if (leading < width || leading > kLargestBlasInt) return std::nullopt;
  return leading;
}

/// The tokens [B,T,W] as a matrix of B·T rows, copied only where the strides demand it.
template <class T>
class TokenRows {
 public:
  explicit TokenRows(const TensorView<const T, 3>& view)
      : count_(view.shape(0) * view.shape(1)), width_(view.shape(2)) {
    if (const auto leading = leading_dimension(view)) {
      data_ = view.data();
      leading_ = *leading;
    } else {
      copy_.emplace(contiguous_copy(view));
      data_ = copy_->data();
      leading_ = width_;
    }
  }

  Index count() const noexcept { return count_; }
  Index width() const noexcept { return width_; }
  const T* data() const noexcept { return data_; }
  blasint leading() const noexcept { return blas_int(leading_); }
  std::span<const T> row(Index r) const noexcept {
    return {data_ + r * leading_, static_cast<std::size_t>(width_)};
  }

 private:
  Index count_;
  Index width_;
  const T* data_ = nullptr;
  Index leading_ = 0;
  std::optional<Tensor<T, 3>> copy_;
};

/// C [m,n] = op(A)·op(B) + beta·C; n is the leading dimension of C.
template <class T>
struct Product {
  CBLAS_TRANSPOSE transpose_a;
  CBLAS_TRANSPOSE transpose_b;
  Index m, n, k;
  const T* a;
  blasint leading_a;
  const T* b;
  blasint leading_b;
};

void multiply(const Product<double>& p, double beta, double* c) {
  cblas_dgemm(CblasRowMajor, p.transpose_a, p.transpose_b, blas_int(p.m), blas_int(p.n),
              blas_int(p.k), 1.0, p.a, p.leading_a, p.b, p.leading_b, beta, c, blas_int(p.n));
}

void multiply(const Product<float>& p, float beta, float* c) {
  cblas_sgemm(CblasRowMajor, p.transpose_a, p.transpose_b, blas_int(p.m), blas_int(p.n),
              blas_int(p.k), 1.0F, p.a, p.leading_a, p.b, p.leading_b, beta, c, blas_int(p.n));
}

template <class T>
bool is_finite(std::span<const T> row) {
  return std::all_of(row.begin(), row.end(), [](T x) { return std::isfinite(x); });
}

template <class T>
std::vector<Index> rows_that_are_not_finite(const TokenRows<T>& rows) {
  std::vector<Index> result;
  for (Index r = 0; r < rows.count(); ++r) {
    if (!is_finite(rows.row(r))) result.push_back(r);
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
  multiply(Product<T>{.transpose_a = CblasTrans,
                      .transpose_b = CblasNoTrans,
                      .m = dy.width(),
                      .n = x.width(),
                      .k = x.count(),
                      .a = dy.data(),
                      .leading_a = dy.leading(),
                      .b = x.data(),
                      .leading_b = x.leading()},
           T{0}, gradient.data());
}

void check_blas_size(std::string_view operation, std::string_view argument, std::string_view what,
                     Index size) {
  if (size > kLargestBlasInt) {
    throw std::invalid_argument(fmt::format("{}: {}: expected at most {} {}, got {}", operation,
                                            argument, kLargestBlasInt, what, size));
  }
}

}  // namespace

void check_projection_size(std::string_view operation, std::string_view argument, Index batch,
                           Index tokens) {
  const Extents<2> extents{batch, tokens};
  check_blas_size(operation, argument, "tokens in all samples", element_count(extents));
}

void check_weight_size(std::string_view operation, std::string_view argument, Index out, Index in) {
  check_blas_size(operation, argument, "rows", out);
  check_blas_size(operation, argument, "columns", in);
}

template <class T>
void project(const TensorView<const T, 3>& input, const Tensor<T, 2>& weight,
             const std::optional<Tensor<T, 1>>& bias, Tensor<T, 3>& output) {
  const TokenRows<T> x(input);
  if (x.count() == 0) return;
  const Index out = weight.shape(0);
  if (bias) {
    for (Index r = 0; r < x.count(); ++r) std::copy_n(bias->data(), out, output.data() + r * out);
  }
  multiply(Product<T>{.transpose_a = CblasNoTrans,
                      .transpose_b = CblasTrans,
                      .m = x.count(),
                      .n = out,
                      .k = x.width(),
                      .a = x.data(),
                      .leading_a = x.leading(),
                      .b = weight.data(),
                      .leading_b = blas_int(x.width())},
           bias ? T{1} : T{0}, output.data());
}

template <class T>
void add_input_gradient(const TensorView<const T, 3>& output_gradient, const Tensor<T, 2>& weight,
                        Tensor<T, 3>& input_gradient) {
  const TokenRows<T> dy(output_gradient);
  if (dy.count() == 0) return;
  const Index in = weight.shape(1);
  multiply(Product<T>{.transpose_a = CblasNoTrans,
                      .transpose_b = CblasNoTrans,
                      .m = dy.count(),
                      .n = in,
                      .k = dy.width(),
                      .a = dy.data(),
                      .leading_a = dy.leading(),
                      .b = weight.data(),
                      .leading_b = blas_int(in)},
           T{1}, input_gradient.data());
}

template <class T>
Tensor<T, 2> weight_gradient(const TensorView<const T, 3>& output_gradient,
                             const TensorView<const T, 3>& input) {
  Tensor<T, 2> gradient({output_gradient.shape(2), input.shape(2)});
  const TokenRows<T> x(input);
  const TokenRows<T> dy(output_gradient);
  if (x.count() == 0) return gradient;
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
      const T factor = dy.row(r)[static_cast<std::size_t>(o)];
      if (factor == T{0}) continue;
      for (Index i = 0; i < x.width(); ++i) {
        gradient(o, i) += factor * x.row(r)[static_cast<std::size_t>(i)];
      }
    }
  }
  return gradient;
}

template <class T>
Tensor<T, 1> bias_gradient(const TensorView<const T, 3>& output_gradient) {
  const TokenRows<T> dy(output_gradient);
  std::vector<double> sums(static_cast<std::size_t>(dy.width()), 0.0);
  for (Index r = 0; r < dy.count(); ++r) {
    const std::span<const T> row = dy.row(r);
    for (std::size_t o = 0; o < sums.size(); ++o) sums[o] += static_cast<double>(row[o]);
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
