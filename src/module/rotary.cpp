#include "qkv/rotary.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "base/validate.h"

namespace qkv {
namespace {

enum class Direction : std::uint8_t { Forward, Backward };

/// How many leading elements of a head turn, checked against the head's width.
Index rotated_width(std::string_view operation, const RotaryOptions& options, Index head_width) {
  const Index width = options.width.value_or(head_width);
  if (width < 0 || width > head_width || width % 2 != 0) {
    throw std::invalid_argument(
        fmt::format("{}: width: expected an even number of at most the head width {}, got {}",
                    operation, head_width, width));
  }
  if (!(std::isfinite(options.base) && options.base > 0)) {
    throw std::invalid_argument(fmt::format("{}: base: expected a positive finite number, got {}",
                                            operation, options.base));
  }
  return width;
}

template <class T>
void validate(std::string_view operation, const TensorView<const T, 4>& source,
              const TensorView<const Index, 2>& positions, const TensorView<T, 4>& target) {
  const NamedView input{"input", footprint(source)};
  const NamedView output{"output", footprint(target)};
  const NamedView where{"positions", footprint(positions)};
  expect_shape(operation, input, source.shape());
  expect_shape(operation, output, source.shape());
  const Index samples = positions.shape(0) == 1 ? 1 : source.shape(0);
  expect_shape(operation, where, Extents<2>{samples, source.shape(2)});

  const bool in_place = source.data() == target.data() && source.strides() == target.strides();
  std::vector<NamedView> inputs{where};
  if (!in_place) inputs.push_back(input);
  validate_outputs(operation, {&output, 1}, inputs);
}

/// Cosine and sine of the angle of every pair: [rows of positions, T, width / 2].
struct Turns {
  Tensor<double, 3> cosine;
  Tensor<double, 3> sine;
};

Turns turns_of(const TensorView<const Index, 2>& positions, const RotaryOptions& options,
               Index width) {
  const Index pairs = width / 2;
  const Extents<3> shape{positions.shape(0), positions.shape(1), pairs};
  Turns turns{Tensor<double, 3>(shape), Tensor<double, 3>(shape)};
  for (Index i = 0; i < pairs; ++i) {
    const double frequency =
        std::pow(options.base, -2.0 * static_cast<double>(i) / static_cast<double>(width));
    for (Index b = 0; b < shape[0]; ++b) {
      for (Index t = 0; t < shape[1]; ++t) {
        const double angle = static_cast<double>(positions(b, t)) * frequency;
        turns.cosine(b, t, i) = std::cos(angle);
        turns.sine(b, t, i) = std::sin(angle);
      }
    }
  }
  return turns;
}

template <class T>
void rotate(std::string_view operation, const TensorView<const T, 4>& source,
            const TensorView<const Index, 2>& positions, const RotaryOptions& options,
            const TensorView<T, 4>& target, Direction direction) {
  validate(operation, source, positions, target);
  const auto [batch, heads, tokens, head_width] = source.shape();
  const Index width = rotated_width(operation, options, head_width);
  const Turns turns = turns_of(positions, options, width);
  const double sign = direction == Direction::Forward ? 1.0 : -1.0;

  for (Index b = 0; b < batch; ++b) {
    const Index row = positions.shape(0) == 1 ? 0 : b;
    for (Index h = 0; h < heads; ++h) {
      for (Index t = 0; t < tokens; ++t) {
        for (Index i = 0; i < width / 2; ++i) {
          const bool halves = options.pairing == RotaryPairing::Halves;
          const Index first = halves ? i : 2 * i;
          const Index second = halves ? i + width / 2 : 2 * i + 1;
          const double cosine = turns.cosine(row, t, i);
          const double sine = sign * turns.sine(row, t, i);
          const auto x = static_cast<double>(source(b, h, t, first));
          const auto y = static_cast<double>(source(b, h, t, second));
          target(b, h, t, first) = static_cast<T>(x * cosine - y * sine);
          target(b, h, t, second) = static_cast<T>(x * sine + y * cosine);
        }
        for (Index d = width; d < head_width; ++d) target(b, h, t, d) = source(b, h, t, d);
      }
    }
  }
}

}  // namespace

template <class T>
void apply_rotary(const TensorView<const T, 4>& input, const TensorView<const Index, 2>& positions,
                  const RotaryOptions& options, const TensorView<T, 4>& output) {
  rotate("apply_rotary", input, positions, options, output, Direction::Forward);
}

template <class T>
void apply_rotary_backward(const TensorView<const T, 4>& output_gradient,
                           const TensorView<const Index, 2>& positions,
                           const RotaryOptions& options, const TensorView<T, 4>& input_gradient) {
  // The transpose of a rotation is the rotation by the opposite angle.
  rotate("apply_rotary_backward", output_gradient, positions, options, input_gradient,
         Direction::Backward);
}

template void apply_rotary(const TensorView<const double, 4>&, const TensorView<const Index, 2>&,
                           const RotaryOptions&, const TensorView<double, 4>&);
template void apply_rotary(const TensorView<const float, 4>&, const TensorView<const Index, 2>&,
                           const RotaryOptions&, const TensorView<float, 4>&);
template void apply_rotary_backward(const TensorView<const double, 4>&,
                                    const TensorView<const Index, 2>&, const RotaryOptions&,
                                    const TensorView<double, 4>&);
template void apply_rotary_backward(const TensorView<const float, 4>&,
                                    const TensorView<const Index, 2>&, const RotaryOptions&,
                                    const TensorView<float, 4>&);

}  // namespace qkv
