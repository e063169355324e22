#include "check/entering.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>

#include "base/rounding.h"
#include "qkv/rms_norm.h"

namespace qkv {
namespace {

/// Whether numbers of this dtype can be these; else the code has rounded them when it took them.
bool holds(DType dtype, std::span<const double> numbers) {
  const auto all = [&](auto round) {
    return std::all_of(numbers.begin(), numbers.end(), [&](double number) {
      return !std::isfinite(number) || round(number) == number;
    });
  };
  switch (dtype) {
    case DType::Float32:
      return all([](double x) { return static_cast<double>(static_cast<float>(x)); });
    case DType::Float16:
      return all([](double x) { return static_cast<double>(Float16(x)); });
    case DType::BFloat16:
      return all([](double x) { return static_cast<double>(BFloat16(x)); });
    default:
      return true;
  }
}

template <int Rank>
Rounded<Rank> as_given(const Tensor<double, Rank>& given, const Arithmetic& arithmetic,
                       DType ran_in) {
  Rounded<Rank> result{given, Tensor<double, Rank>(given.shape())};
  if (holds(ran_in, given.elements())) return result;
  for (std::size_t i = 0; i < given.elements().size(); ++i) {
    result.variance.elements()[i] = storage_variance(arithmetic, std::fabs(given.elements()[i]));
  }
  return result;
}

/// [B·rows, heads·width] → [B,heads,rows,width]
Tensor<double, 4> heads_apart(const Tensor<double, 2>& merged, Index batch, Index heads) {
  const TensorView<const double, 3> tokens(
      merged.data(), {batch, merged.shape(0) / std::max<Index>(batch, 1), merged.shape(1)});
  return contiguous_copy(split_heads(tokens, heads));
}

Rounded<4> heads_apart(const Rounded<2>& merged, Index batch, Index heads) {
  return {heads_apart(merged.value, batch, heads), heads_apart(merged.variance, batch, heads)};
}

TensorView<const double, 2> rows_of(const Tensor<double, 3>& tokens) {
  return {tokens.data(), {tokens.shape(0) * tokens.shape(1), tokens.shape(2)}};
}

/// An RMS norm rounds once, its weight once more; what was rounded before is scaled with the row.
void add_norm(const std::optional<Tensor<double, 1>>& given, double epsilon,
              const Arithmetic& arithmetic, Rounded<4>& tensor) {
  const Index width = tensor.value.shape(3);
  Tensor<double, 1> weight({width});
  for (Index i = 0; i < width; ++i) weight(i) = given ? (*given)(i) : 1.0;
  for (std::size_t row = 0; row + 1 <= tensor.value.elements().size() /
                                           static_cast<std::size_t>(std::max<Index>(width, 1));
       ++row) {
    const std::size_t begin = row * static_cast<std::size_t>(width);
    double squares = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(width); ++i) {
      const double x = tensor.value.elements()[begin + i];
      squares += x * x;
    }
    const double norm = std::sqrt(squares / static_cast<double>(width) + epsilon);
    for (std::size_t i = 0; i < static_cast<std::size_t>(width); ++i) {
      const double factor = weight.elements()[i] / norm;
      double& variance = tensor.variance.elements()[begin + i];
      variance =
          variance * factor * factor +
          storage_variance(arithmetic, std::fabs(tensor.value.elements()[begin + i] * factor), 2);
    }
  }
  rms_norm<double>(tensor.value.view(), weight.view(), epsilon, tensor.value.view());
}

/// Rotated elements are sums of two products with a rounded sine and cosine, and angles are known to float32 only.
void add_rotary(const RotaryOptions& options, const Tensor<Index, 2>& positions,
                const Arithmetic& arithmetic, Rounded<4>& tensor) {
  const Index width = options.width.value_or(tensor.value.shape(3));
  const Index half = width / 2;
  const bool halves = options.pairing == RotaryPairing::Halves;
  for (Index b = 0; b < tensor.value.shape(0); ++b) {
    for (Index h = 0; h < tensor.value.shape(1); ++h) {
      for (Index t = 0; t < tensor.value.shape(2); ++t) {
        const auto position = static_cast<double>(positions(positions.shape(0) == 1 ? 0 : b, t));
        for (Index i = 0; i < half; ++i) {
          const Index first = halves ? i : 2 * i;
          const Index second = halves ? i + half : 2 * i + 1;
          double& a = tensor.variance(b, h, t, first);
          double& c = tensor.variance(b, h, t, second);
          const double length =
              std::hypot(tensor.value(b, h, t, first), tensor.value(b, h, t, second));
          const double angle = position * std::pow(options.base, -2.0 * static_cast<double>(i) /
                                                                     static_cast<double>(width));
          // The inverse frequency, its product with the position, and what sine and cosine make of a large angle.
          const double angle_error = kRoundingRms * arithmetic.compute * angle * 2;
          const double turned = storage_variance(arithmetic, length, 1.5) +
                                angle_error * angle_error * length * length;
          a = c = std::max(a, c) + turned;
        }
      }
    }
  }
  apply_rotary<double>(tensor.value.view(), positions.view(), options, tensor.value.view());
}

/// Queries or keys on their way to the scores.
void add_norm_and_rotary(const Dump& dump, bool is_query, const Arithmetic& arithmetic,
                         Rounded<4>& tensor) {
  const auto norm = [&] {
    const auto& weight = is_query ? dump.qk_norm->query_weight : dump.qk_norm->key_weight;
    add_norm(weight, dump.qk_norm->epsilon, arithmetic, tensor);
  };
  if (dump.qk_norm && !dump.qk_norm->after_rotary) norm();
  if (dump.rotary) {
    add_rotary(dump.rotary->options,
               is_query ? dump.rotary->query_positions : dump.rotary->key_positions, arithmetic,
               tensor);
  }
  if (dump.qk_norm && dump.qk_norm->after_rotary) norm();
  // The scale may have been put on q, on k, or on both by halves: one rounding of one of them.
  for (std::size_t i = 0; i < tensor.value.elements().size(); ++i) {
    tensor.variance.elements()[i] +=
        storage_variance(arithmetic, std::fabs(tensor.value.elements()[i]), 0.5);
  }
}

}  // namespace

Rounded<2> projected(const TensorView<const double, 2>& rows,
                     const std::optional<TensorView<const double, 2>>& rows_variance,
                     const Tensor<double, 2>& weight, const std::optional<Tensor<double, 1>>& bias,
                     const Arithmetic& arithmetic, DType ran_in) {
  const Index width = weight.shape(1);
  Rounded<2> result{Tensor<double, 2>({rows.shape(0), weight.shape(0)}),
                    Tensor<double, 2>({rows.shape(0), weight.shape(0)})};
  const bool rounds_weight = !holds(ran_in, weight.elements());
  const double weight_variance = rounds_weight ? storage_variance(arithmetic, 1) : 0.0;
#pragma omp parallel for schedule(static)
  for (Index n = 0; n < rows.shape(0); ++n) {
    const double* x = rows.data() + n * width;
    const double* x_variance = rows_variance ? rows_variance->data() + n * width : nullptr;
    for (Index r = 0; r < weight.shape(0); ++r) {
      const double* w = weight.data() + r * width;
      double sum = 0;
      double squares = 0;
#pragma omp simd reduction(+ : sum, squares)
      for (Index i = 0; i < width; ++i) {
        const double product = x[i] * w[i];
        sum += product;
        squares += product * product;
      }
      double variance = squares * weight_variance + sum_variance(arithmetic, squares, sum, width) +
                        storage_variance(arithmetic, std::fabs(sum));
      if (x_variance != nullptr) {
        double entering = 0;
#pragma omp simd reduction(+ : entering)
        for (Index i = 0; i < width; ++i) entering += x_variance[i] * (w[i] * w[i]);
        variance += entering;
      }
      if (bias) {
        sum += (*bias)(r);
        variance += storage_variance(arithmetic, std::fabs(sum));
      }
      result.value(n, r) = sum;
      result.variance(n, r) = variance;
    }
  }
  return result;
}

std::optional<Entering> projected_inputs(const Dump& dump, const Arithmetic& arithmetic) {
  if (!dump.projections) return std::nullopt;
  const DumpProjections& projections = *dump.projections;
  const Rounded<3> input = as_given(projections.input, arithmetic, dump.ran_in);
  const Rounded<3> key_input = as_given(projections.key_input, arithmetic, dump.ran_in);
  const auto through = [&](const Rounded<3>& tokens, const Tensor<double, 2>& weight,
                           const std::optional<Tensor<double, 1>>& bias, Index heads) {
    return heads_apart(projected(rows_of(tokens.value), rows_of(tokens.variance), weight, bias,
                                 arithmetic, dump.ran_in),
                       dump.shape.batch, heads);
  };
  return Entering{
      through(input, projections.query_weight, projections.query_bias, dump.shape.heads),
      through(key_input, projections.key_weight, projections.key_bias, dump.shape.kv_heads),
      through(key_input, projections.value_weight, projections.value_bias, dump.shape.kv_heads)};
}

Entering entering(const Dump& dump, const Arithmetic& arithmetic) {
  Entering result;
  if (dump.has_heads) {
    result = {as_given(dump.query, arithmetic, dump.ran_in),
              as_given(dump.key, arithmetic, dump.ran_in),
              as_given(dump.value, arithmetic, dump.ran_in)};
  } else {
    result = *projected_inputs(dump, arithmetic);
  }
  add_norm_and_rotary(dump, true, arithmetic, result.query);
  add_norm_and_rotary(dump, false, arithmetic, result.key);
  return result;
}

AttentionInputs<double> oracle_inputs(const Dump& dump, const Entering& entering) {
  AttentionInputs<double> inputs;
  inputs.query = entering.query.value.view();
  inputs.key = entering.key.value.view();
  inputs.value = entering.value.value.view();
  inputs.mask = dump.rules.mask();
  inputs.scale = dump.scale;
  inputs.softcap = dump.softcap;
  if (dump.bias) inputs.bias = dump.bias->view();
  if (dump.alibi_slopes) inputs.alibi = Alibi{*dump.alibi_slopes, dump.rules.corner};
  if (dump.sink) inputs.sink = dump.sink->view();
  return inputs;
}

}  // namespace qkv
