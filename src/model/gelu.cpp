#include "model/gelu.h"

#include <cmath>
#include <numbers>

namespace qkv {

template <class T>
void gelu(Tensor<T, 3>& value, Tensor<T, 3>& slope) {
  constexpr T kInverseRoot2 = T{1} / std::numbers::sqrt2_v<T>;
  constexpr T kDensityAtZero = std::numbers::inv_sqrtpi_v<T> * kInverseRoot2;
  const auto count = static_cast<Index>(value.elements().size());
  T* values = value.data();
  T* slopes = slope.data();
#pragma omp parallel for schedule(static)
  for (Index i = 0; i < count; ++i) {
    const T x = values[i];
    const T below = T{0.5} * std::erfc(-x * kInverseRoot2);  // Φ, without cancellation for x << 0
    values[i] = x * below;
    slopes[i] = below + x * kDensityAtZero * std::exp(T{-0.5} * x * x);
  }
}

template void gelu(Tensor<double, 3>&, Tensor<double, 3>&);
template void gelu(Tensor<float, 3>&, Tensor<float, 3>&);

}  // namespace qkv
