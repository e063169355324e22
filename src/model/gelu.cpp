#include "model/gelu.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/kernel_table.h"

namespace qkv {
namespace {

/// `slopes` may be null.
void gelu_row(double* values, double* slopes, Index count) {
  constexpr double kInverseRoot2 = 1 / std::numbers::sqrt2;
  constexpr double kDensityAtZero = std::numbers::inv_sqrtpi * kInverseRoot2;
  for (Index i = 0; i < count; ++i) {
    const double x = values[i];
    const double below = 0.5 * std::erfc(-x * kInverseRoot2);  // Φ, without cancellation for x << 0
    values[i] = x * below;
    if (slopes != nullptr) slopes[i] = below + x * kDensityAtZero * std::exp(-0.5 * x * x);
  }
}

void gelu_row(float* values, float* slopes, Index count) {
  kernels::targets().front().gelu(values, slopes, count);
}

template <class T>
void gelu_rows(T* values, T* slopes, Index count) {
  constexpr Index kRow = 1024;
#pragma omp parallel for schedule(static)
  for (Index i = 0; i < count; i += kRow) {
    gelu_row(values + i, slopes == nullptr ? nullptr : slopes + i, std::min(kRow, count - i));
  }
}

}  // namespace

template <class T>
void gelu(Tensor<T, 3>& value, Tensor<T, 3>& slope) {
  gelu_rows(value.data(), slope.data(), static_cast<Index>(value.elements().size()));
}

template <class T>
void gelu(Tensor<T, 3>& value) {
  gelu_rows<T>(value.data(), nullptr, static_cast<Index>(value.elements().size()));
}

template void gelu(Tensor<double, 3>&, Tensor<double, 3>&);
template void gelu(Tensor<float, 3>&, Tensor<float, 3>&);
template void gelu(Tensor<double, 3>&);
template void gelu(Tensor<float, 3>&);

}  // namespace qkv
