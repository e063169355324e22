// The derivatives that a dump was meant to hold. Variances follow the chain rule as reference/backward.cpp has it:
//
//   dp_j = dout·v_j    δ = Σ_j p_j·dp_j    ds_j = p_j·(dp_j − δ)    dq = f'·Σ_j ds_j·k_j    dk, dv likewise
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/rounding.h"
#include "check/expected_head.h"
#include "qkv/reference.h"
#include "qkv/rms_norm.h"

namespace qkv {
namespace {

constexpr double square(double x) { return x * x; }

/// ds of one row, and its variance.
struct ScoreGradientRow {
  std::vector<double> value;
  std::vector<double> variance;
  std::vector<double> weight_variance;
};

ScoreGradientRow score_gradient(const Arithmetic& arithmetic, const ExpectedHead& one, Index t,
                                std::span<const double> upstream, std::span<const double> context) {
  const auto weight = row_of(one.scores.weights, t);
  const std::size_t keys = weight.size();
  ScoreGradientRow row{std::vector<double>(keys), std::vector<double>(keys),
                       std::vector<double>(keys)};
  weight_variance(arithmetic, weight, row_of(one.score_variance, t), row.weight_variance);
  std::vector<double> dp(keys);
  std::vector<double> dp_variance(keys);
  double mean = 0;
  double mean_variance = 0;
  for (std::size_t s = 0; s < keys; ++s) {
    if (weight[s] == 0) continue;
    double sum = 0;
    double squares = 0;
    double entering = 0;
    const double* value = one.head.value.data() + s * upstream.size();
    const double* value_variance = one.value_variance.data() + s * upstream.size();
    for (std::size_t d = 0; d < upstream.size(); ++d) {
      const double product = upstream[d] * value[d];
      sum += product;
      squares += product * product;
      entering += square(upstream[d]) * value_variance[d];
    }
    dp[s] = sum;
    dp_variance[s] = entering + storage_variance(arithmetic, std::fabs(sum)) +
                     sum_variance(arithmetic, squares, sum, static_cast<Index>(upstream.size()));
    mean += weight[s] * sum;
    mean_variance += square(weight[s]) * dp_variance[s];
  }
  // δ is a sum over the keys, or over the elements of dout and out, which is rounded: the larger one counts.
  double by_elements = 0;
  for (std::size_t d = 0; d < upstream.size(); ++d) {
    by_elements += storage_variance(arithmetic, std::fabs(upstream[d] * context[d]));
  }
  for (std::size_t s = 0; s < keys; ++s) {
    mean_variance += row.weight_variance[s] * square(dp[s] - mean);
  }
  mean_variance += by_elements + storage_variance(arithmetic, std::fabs(mean));
  for (std::size_t s = 0; s < keys; ++s) {
    if (weight[s] == 0) continue;
    row.value[s] = weight[s] * (dp[s] - mean);
    row.variance[s] = row.weight_variance[s] * square(dp[s] - mean) +
                      square(weight[s]) * (dp_variance[s] + mean_variance) +
                      storage_variance(arithmetic, std::fabs(row.value[s]), 2);
  }
  return row;
}

/// A softcap's slope is scale·(1 − tanh²): where tanh is nearly 1 the difference keeps the rounding of tanh² alone.
double slope_variance(const Arithmetic& arithmetic, double scale, double slope) {
  return storage_variance(arithmetic, std::fabs(scale) - std::fabs(slope), 2);
}

void add_scaled_squares(double factor, std::span<const double> row, std::span<double> sum) {
  for (std::size_t i = 0; i < row.size(); ++i) sum[i] += factor * (row[i] * row[i]);
}

void add_scaled(double factor, std::span<const double> row, std::span<double> sum) {
  for (std::size_t i = 0; i < row.size(); ++i) sum[i] += factor * row[i];
}

/// `terms`: of the sum that each element is.
void add_output_variance(const Arithmetic& arithmetic, Index terms, Rounded<4>& gradient) {
  const auto value = gradient.value.elements();
  const auto variance = gradient.variance.elements();
  const double sum = square(kRoundingRms * arithmetic.compute) * static_cast<double>(terms) / 3;
  for (std::size_t i = 0; i < value.size(); ++i) {
    variance[i] += sum * square(value[i]) + storage_variance(arithmetic, std::fabs(value[i])) +
                   output_variance(arithmetic, value[i]);
  }
}

/// Rows without a key give the mean of all values under a finite fill, and their gradients go back to all of them; NaN spreads.
void add_empty_rows(const Dump& dump, Expected& expected) {
  if (dump.sink) return;  // it takes all the weight
  const auto& shape = dump.shape;
  const Index group = std::max<Index>(shape.group(), 1);
  for (Index b = 0; b < shape.batch; ++b) {
    for (Index h = 0; h < shape.heads; ++h) {
      for (Index t = 0; t < shape.queries; ++t) {
        if (!expected.empty(b, h, t) || dump.empty_row == EmptyRow::Zero) continue;
        const auto upstream = row_of(*dump.context_gradient, b, h, t);
        const bool mean = dump.empty_row == EmptyRow::Mean;
        const double weight = 1 / static_cast<double>(shape.keys);
        for (Index s = 0; s < shape.keys; ++s) {
          const auto value = row_of(expected.value_gradient->value, b, h / group, s);
          const auto variance = row_of(expected.value_gradient->variance, b, h / group, s);
          const auto key = row_of(expected.key_gradient->variance, b, h / group, s);
          for (std::size_t d = 0; mean && d < value.size(); ++d) {
            value[d] += weight * upstream[d];
            variance[d] += storage_variance(expected.arithmetic, weight * std::fabs(upstream[d]));
          }
          if (mean) continue;
          std::fill(variance.begin(), variance.end(), std::numeric_limits<double>::infinity());
          std::fill(key.begin(), key.end(), std::numeric_limits<double>::infinity());
        }
        if (mean) continue;
        const auto query = row_of(expected.query_gradient->variance, b, h, t);
        std::fill(query.begin(), query.end(), std::numeric_limits<double>::infinity());
      }
    }
  }
}

void rotary_backward(const DumpRotary& rotary, const Tensor<Index, 2>& positions,
                     const Arithmetic& arithmetic, Rounded<4>& gradient) {
  const Index width = rotary.options.width.value_or(gradient.value.shape(3));
  const bool halves = rotary.options.pairing == RotaryPairing::Halves;
  for (Index b = 0; b < gradient.value.shape(0); ++b) {
    for (Index h = 0; h < gradient.value.shape(1); ++h) {
      for (Index t = 0; t < gradient.value.shape(2); ++t) {
        const auto value = row_of(gradient.value, b, h, t);
        const auto variance = row_of(gradient.variance, b, h, t);
        const auto position = static_cast<double>(positions(positions.shape(0) == 1 ? 0 : b, t));
        for (Index i = 0; i < width / 2; ++i) {
          const auto first = static_cast<std::size_t>(halves ? i : 2 * i);
          const auto second = static_cast<std::size_t>(halves ? i + width / 2 : 2 * i + 1);
          const double length = std::hypot(value[first], value[second]);
          const double angle =
              position * std::pow(rotary.options.base,
                                  -2.0 * static_cast<double>(i) / static_cast<double>(width));
          variance[first] = variance[second] =
              std::max(variance[first], variance[second]) +
              storage_variance(arithmetic, length, 1.5) +
              square(2 * kRoundingRms * arithmetic.compute * angle * length);
        }
      }
    }
  }
  apply_rotary_backward<double>(gradient.value.view(), positions.view(), rotary.options,
                                gradient.value.view());
}

void norm_backward(const Tensor<double, 4>& input, const std::optional<Tensor<double, 1>>& given,
                   double epsilon, const Arithmetic& arithmetic, Rounded<4>& gradient) {
  const Index width = input.shape(3);
  Tensor<double, 1> weight({width});
  for (Index i = 0; i < width; ++i) weight(i) = given ? (*given)(i) : 1.0;
  const auto count = static_cast<double>(width);
  for (Index b = 0; b < input.shape(0); ++b) {
    for (Index h = 0; h < input.shape(1); ++h) {
      for (Index t = 0; t < input.shape(2); ++t) {
        const auto value = row_of(gradient.value, b, h, t);
        const auto variance = row_of(gradient.variance, b, h, t);
        double squares = epsilon;
        for (Index i = 0; i < width; ++i) squares += square(input(b, h, t, i)) / count;
        double shared = 0;
        for (Index i = 0; i < width; ++i) {
          const auto at = static_cast<std::size_t>(i);
          const double mean = input(b, h, t, i) * weight(i) / count;
          shared += square(mean) / squares *
                    (variance[at] + storage_variance(arithmetic, std::fabs(value[at]), 2));
        }
        for (Index i = 0; i < width; ++i) {
          const auto at = static_cast<std::size_t>(i);
          const double own = square(weight(i)) * variance[at] +
                             storage_variance(arithmetic, std::fabs(weight(i) * value[at]), 2);
          variance[at] = (own + shared * square(input(b, h, t, i)) / squares) / squares;
        }
      }
    }
  }
  Tensor<double, 4> result(input.shape());
  rms_norm_backward<double>(input.view(), weight.view(), epsilon, gradient.value.view(),
                            {result.view(), Tensor<double, 1>({width}).view()});
  gradient.value = std::move(result);
}

void back_to_input(const Dump& dump, bool is_query, const Arithmetic& arithmetic,
                   Rounded<4>& gradient) {
  Tensor<double, 4> input = is_query ? dump.query : dump.key;
  const auto norm = [&] {
    const auto& weight = is_query ? dump.qk_norm->query_weight : dump.qk_norm->key_weight;
    norm_backward(input, weight, dump.qk_norm->epsilon, arithmetic, gradient);
  };
  const Tensor<Index, 2>* positions = nullptr;
  if (dump.rotary) {
    positions = is_query ? &dump.rotary->query_positions : &dump.rotary->key_positions;
  }
  if (dump.qk_norm && dump.qk_norm->after_rotary) {
    if (dump.rotary) {
      apply_rotary<double>(input.view(), positions->view(), dump.rotary->options, input.view());
    }
    norm();
  }
  if (dump.rotary) rotary_backward(*dump.rotary, *positions, arithmetic, gradient);
  if (dump.qk_norm && !dump.qk_norm->after_rotary) norm();
}

}  // namespace

void add_gradient_variances(const Dump& dump, const AttentionInputs<double>& inputs,
                            const AttentionPlan& plan, const ExpectedHead& one,
                            Expected& expected) {
  const auto& shape = plan.shape;
  const Index b = one.head.b;
  const Index h = one.head.h;
  const Index kv_head = h / shape.group();
  const Tensor<double, 4>& upstream = *dump.context_gradient;
  // What a sum of so many terms adds to the variance of each, in units of its square.
  const double product = square(kRoundingRms * expected.arithmetic.compute);
  const double by_keys = product * (1 + static_cast<double>(shape.keys) / 2);
  const double by_queries = product * (1 + static_cast<double>(shape.queries * shape.group()) / 2);
  for (Index t = 0; t < shape.queries; ++t) {
    if (expected.empty(b, h, t)) continue;
    const auto dout = row_of(upstream, b, h, t);
    const auto row =
        score_gradient(expected.arithmetic, one, t, dout, row_of(expected.context.value, b, h, t));
    const auto query = row_of(expected.query_gradient->variance, b, h, t);
    for (Index s = 0; s < shape.keys; ++s) {
      if (!one.scores.visible(t, s)) continue;
      const auto at = static_cast<std::size_t>(s);
      const double slope = reference::score_slope(inputs, plan, one.head, t, s);
      const auto key = row_of(expected.key_gradient->variance, b, kv_head, s);
      const double exact = square(slope * row.value[at]);
      const double rounded =
          square(slope) * row.variance[at] +
          slope_variance(expected.arithmetic, plan.scale, slope) * square(row.value[at]);
      add_scaled_squares(rounded + exact * by_keys, row_of(one.head.key, s), query);
      add_scaled(exact, row_of(one.key_variance, s), query);
      add_scaled_squares(rounded + exact * by_queries, row_of(one.head.query, t), key);
      add_scaled(exact, row_of(one.query_variance, t), key);
      const double weight = square(one.scores.weights(t, s)) * by_queries;
      add_scaled_squares(row.weight_variance[at] + weight, dout,
                         row_of(expected.value_gradient->variance, b, kv_head, s));
    }
  }
}

void finish_gradients(const Dump& dump, const AttentionInputs<double>& inputs, Expected& expected) {
  AttentionOutputGradients<double> upstream;
  upstream.context = dump.context_gradient->view();
  AttentionInputGradients<double> results;
  results.query = expected.query_gradient->value.view();
  results.key = expected.key_gradient->value.view();
  results.value = expected.value_gradient->value.view();
  reference::backward(inputs, upstream, results);
  add_empty_rows(dump, expected);
  const Index queries = dump.shape.queries * std::max<Index>(dump.shape.group(), 1);
  add_output_variance(expected.arithmetic, dump.shape.keys, *expected.query_gradient);
  add_output_variance(expected.arithmetic, queries, *expected.key_gradient);
  add_output_variance(expected.arithmetic, queries, *expected.value_gradient);
  back_to_input(dump, true, expected.arithmetic, *expected.query_gradient);
  back_to_input(dump, false, expected.arithmetic, *expected.key_gradient);
}

}  // namespace qkv
