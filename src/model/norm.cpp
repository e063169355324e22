#include "model/norm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "model/elementwise.h"
#include "qkv/rms_norm.h"

namespace qkv {
namespace {

/// The tokens as rows of heads: [B,1,T,D].
template <class T>
TensorView<T, 4> rows_of(const TensorView<T, 3>& tokens) {
  return {tokens.data(), {tokens.shape(0), 1, tokens.shape(1), tokens.shape(2)}};
}

struct RowStatistics {
  double mean = 0;
  double inverse_deviation = 0;  // 1 / √(var + ε)
};

template <class T>
RowStatistics statistics(const T* row, Index width, double epsilon) {
  double sum = 0;
  for (Index d = 0; d < width; ++d) sum += static_cast<double>(row[d]);
  const double mean = sum / static_cast<double>(width);
  double squares = 0;
  for (Index d = 0; d < width; ++d) {
    const double x = static_cast<double>(row[d]) - mean;
    squares += x * x;
  }
  return {mean, 1.0 / std::sqrt(squares / static_cast<double>(width) + epsilon)};
}

/// The output may be the input.
template <class T>
void layer_norm(const Tensor<T, 3>& input, const NormParameters<T>& parameters, double epsilon,
                Tensor<T, 3>& output) {
  const Index width = input.shape(2);
  const Index rows = input.shape(0) * input.shape(1);
  const T* weight = parameters.weight.data();
  const T* bias = parameters.bias->data();
#pragma omp parallel for schedule(static)
  for (Index r = 0; r < rows; ++r) {
    const T* x = input.data() + r * width;
    T* y = output.data() + r * width;
    const RowStatistics row = statistics(x, width, epsilon);
    for (Index d = 0; d < width; ++d) {
      const double unit = (static_cast<double>(x[d]) - row.mean) * row.inverse_deviation;
      y[d] = static_cast<T>(unit * static_cast<double>(weight[d]) + static_cast<double>(bias[d]));
    }
  }
}

// With r = 1/√(var + ε), u = (x − mean)·r and g = dy·w:
//   dx = r·(g − mean(g) − u·mean(g·u)),  dw = Σ dy·u,  db = Σ dy
template <class T>
NormParameters<T> layer_norm_backward(const Tensor<T, 3>& input,
                                      const NormParameters<T>& parameters, double epsilon,
                                      const Tensor<T, 3>& output_gradient,
                                      Tensor<T, 3>& input_gradient) {
  const Index width = input.shape(2);
  const Index rows = input.shape(0) * input.shape(1);
  std::vector<double> weight_sums(static_cast<std::size_t>(width), 0.0);
  std::vector<double> bias_sums(static_cast<std::size_t>(width), 0.0);
  const double count = static_cast<double>(width);
  for (Index r = 0; r < rows; ++r) {
    const T* x = input.data() + r * width;
    const T* dy = output_gradient.data() + r * width;
    T* dx = input_gradient.data() + r * width;
    const RowStatistics row = statistics(x, width, epsilon);
    double mean = 0;
    double unit_mean = 0;
    for (Index d = 0; d < width; ++d) {
      const double unit = (static_cast<double>(x[d]) - row.mean) * row.inverse_deviation;
      const auto gradient = static_cast<double>(dy[d]);
      const double g = gradient * static_cast<double>(parameters.weight(d));
      mean += g;
      unit_mean += g * unit;
      weight_sums[static_cast<std::size_t>(d)] += gradient * unit;
      bias_sums[static_cast<std::size_t>(d)] += gradient;
    }
    mean /= count;
    unit_mean /= count;
    for (Index d = 0; d < width; ++d) {
      const double unit = (static_cast<double>(x[d]) - row.mean) * row.inverse_deviation;
      const double g = static_cast<double>(dy[d]) * static_cast<double>(parameters.weight(d));
      dx[d] += static_cast<T>(row.inverse_deviation * (g - mean - unit * unit_mean));
    }
  }
  NormParameters<T> gradients{Tensor<T, 1>({width}), Tensor<T, 1>({width})};
  const auto to_element = [](double sum) { return static_cast<T>(sum); };
  std::transform(weight_sums.begin(), weight_sums.end(), gradients.weight.data(), to_element);
  std::transform(bias_sums.begin(), bias_sums.end(), gradients.bias->data(), to_element);
  return gradients;
}

}  // namespace

template <class T>
NormParameters<T> initial_norm(NormKind kind, Index width) {
  NormParameters<T> parameters{Tensor<T, 1>({width})};
  std::fill_n(parameters.weight.data(), width, T{1});
  if (kind == NormKind::LayerNorm) parameters.bias.emplace(Extents<1>{width});
  return parameters;
}

template <class T>
Tensor<T, 3> norm(const Tensor<T, 3>& input, const NormParameters<T>& parameters, double epsilon) {
  auto output = Tensor<T, 3>::uninitialized(input.shape());
  if (parameters.bias) {
    layer_norm(input, parameters, epsilon, output);
    return output;
  }
  rms_norm<T>(rows_of(input.view()), parameters.weight.view(), epsilon, rows_of(output.view()));
  return output;
}

template <class T>
void norm_in_place(Tensor<T, 3>& values, const NormParameters<T>& parameters, double epsilon) {
  if (parameters.bias) {
    layer_norm(values, parameters, epsilon, values);
  } else {
    values = norm(values, parameters, epsilon);
  }
}

template <class T>
NormParameters<T> norm_backward(const Tensor<T, 3>& input, const NormParameters<T>& parameters,
                                double epsilon, const Tensor<T, 3>& output_gradient,
                                Tensor<T, 3>& input_gradient) {
  if (parameters.bias) {
    return layer_norm_backward(input, parameters, epsilon, output_gradient, input_gradient);
  }
  NormParameters<T> gradients{Tensor<T, 1>({input.shape(2)})};
  auto added = Tensor<T, 3>::uninitialized(input.shape());
  rms_norm_backward<T>(rows_of(input.view()), parameters.weight.view(), epsilon,
                       rows_of(output_gradient.view()),
                       {.input = rows_of(added.view()), .weight = gradients.weight.view()});
  add(added, input_gradient);
  return gradients;
}

#define QKV_INSTANTIATE_NORM(T)                                                                   \
  template NormParameters<T> initial_norm(NormKind, Index);                                       \
  template Tensor<T, 3> norm(const Tensor<T, 3>&, const NormParameters<T>&, double);              \
  template void norm_in_place(Tensor<T, 3>&, const NormParameters<T>&, double);                   \
  template NormParameters<T> norm_backward(const Tensor<T, 3>&, const NormParameters<T>&, double, \
                                           const Tensor<T, 3>&, Tensor<T, 3>&);

QKV_INSTANTIATE_NORM(double)
QKV_INSTANTIATE_NORM(float)

#undef QKV_INSTANTIATE_NORM

}  // namespace qkv
