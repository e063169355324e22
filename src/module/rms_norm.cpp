#include "qkv/rms_norm.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "base/validate.h"

namespace qkv {
namespace {

void check_epsilon(std::string_view operation, double epsilon) {
  if (!(std::isfinite(epsilon) && epsilon >= 0)) {
    throw std::invalid_argument(fmt::format(
        "{}: epsilon: expected a finite number of 0 or more, got {}", operation, epsilon));
  }
}

/// 1 / √(mean(row²) + epsilon).
template <class T>
double inverse_rms(const TensorView<const T, 4>& input, Index b, Index h, Index t, double epsilon) {
  const Index width = input.shape(3);
  double sum = 0;
  for (Index d = 0; d < width; ++d) {
    const auto x = static_cast<double>(input(b, h, t, d));
    sum += x * x;
  }
  return 1.0 / std::sqrt(sum / static_cast<double>(width) + epsilon);
}

template <class T>
bool row_is_zero(const TensorView<const T, 4>& view, Index b, Index h, Index t) {
  for (Index d = 0; d < view.shape(3); ++d) {
    if (view(b, h, t, d) != T{0}) return false;
  }
  return true;
}

}  // namespace

template <class T>
void rms_norm(const TensorView<const T, 4>& input, const TensorView<const T, 1>& weight,
              double epsilon, const TensorView<T, 4>& output) {
  constexpr std::string_view kOperation = "rms_norm";
  const NamedView source{"input", footprint(input)};
  const NamedView scale{"weight", footprint(weight)};
  const NamedView target{"output", footprint(output)};
  expect_shape(kOperation, source, input.shape());
  expect_shape(kOperation, scale, Extents<1>{input.shape(3)});
  expect_shape(kOperation, target, input.shape());
  check_epsilon(kOperation, epsilon);
  const bool in_place = input.data() == output.data() && input.strides() == output.strides();
  std::vector<NamedView> inputs{scale};
  if (!in_place) inputs.push_back(source);
  validate_outputs(kOperation, {&target, 1}, inputs);

  const auto [batch, heads, tokens, width] = input.shape();
  for (Index b = 0; b < batch; ++b) {
    for (Index h = 0; h < heads; ++h) {
      for (Index t = 0; t < tokens; ++t) {
        const double factor = inverse_rms(input, b, h, t, epsilon);
        for (Index d = 0; d < width; ++d) {
          output(b, h, t, d) = static_cast<T>(static_cast<double>(input(b, h, t, d)) * factor *
                                              static_cast<double>(weight(d)));
        }
      }
    }
  }
}

// With r = 1 / √(mean(x²) + ε) and g = dy·w:
//   dx = r·(g − x·r²·mean(g·x)),  dw = Σ dy·x·r
template <class T>
void rms_norm_backward(const TensorView<const T, 4>& input, const TensorView<const T, 1>& weight,
                       double epsilon, const TensorView<const T, 4>& output_gradient,
                       const RmsNormGradients<T>& gradients) {
  constexpr std::string_view kOperation = "rms_norm_backward";
  const std::array<NamedView, 3> inputs{{{"input", footprint(input)},
                                         {"weight", footprint(weight)},
                                         {"output_gradient", footprint(output_gradient)}}};
  const std::array<NamedView, 2> outputs{{{"gradients.input", footprint(gradients.input)},
                                          {"gradients.weight", footprint(gradients.weight)}}};
  const Extents<1> weight_shape{input.shape(3)};
  expect_shape(kOperation, inputs[0], input.shape());
  expect_shape(kOperation, inputs[1], weight_shape);
  expect_shape(kOperation, inputs[2], input.shape());
  expect_shape(kOperation, outputs[0], input.shape());
  expect_shape(kOperation, outputs[1], weight_shape);
  check_epsilon(kOperation, epsilon);
  validate_outputs(kOperation, outputs, inputs);

  const auto [batch, heads, tokens, width] = input.shape();
  std::vector<double> weight_gradient(static_cast<std::size_t>(width), 0.0);
  for (Index b = 0; b < batch; ++b) {
    for (Index h = 0; h < heads; ++h) {
      for (Index t = 0; t < tokens; ++t) {
        if (row_is_zero(output_gradient, b, h, t)) {
          for (Index d = 0; d < width; ++d) gradients.input(b, h, t, d) = T{0};
          continue;
        }
        const double factor = inverse_rms(input, b, h, t, epsilon);
        double mean = 0;
        for (Index d = 0; d < width; ++d) {
          const auto x = static_cast<double>(input(b, h, t, d));
          const auto dy = static_cast<double>(output_gradient(b, h, t, d));
          mean += dy * static_cast<double>(weight(d)) * x;
          weight_gradient[static_cast<std::size_t>(d)] += dy * x * factor;
        }
        mean /= static_cast<double>(width);
        for (Index d = 0; d < width; ++d) {
          const auto x = static_cast<double>(input(b, h, t, d));
          const double g =
              static_cast<double>(output_gradient(b, h, t, d)) * static_cast<double>(weight(d));
          gradients.input(b, h, t, d) = static_cast<T>(factor * (g - x * factor * factor * mean));
        }
      }
    }
  }
  for (Index d = 0; d < width; ++d) {
    gradients.weight(d) = static_cast<T>(weight_gradient[static_cast<std::size_t>(d)]);
  }
}

template void rms_norm(const TensorView<const double, 4>&, const TensorView<const double, 1>&,
                       double, const TensorView<double, 4>&);
template void rms_norm(const TensorView<const float, 4>&, const TensorView<const float, 1>&, double,
                       const TensorView<float, 4>&);
template void rms_norm_backward(const TensorView<const double, 4>&,
                                const TensorView<const double, 1>&, double,
                                const TensorView<const double, 4>&,
                                const RmsNormGradients<double>&);
template void rms_norm_backward(const TensorView<const float, 4>&,
                                const TensorView<const float, 1>&, double,
                                const TensorView<const float, 4>&, const RmsNormGradients<float>&);

}  // namespace qkv
