#include "lab/experiment_scale_measure.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/statistics.h"
#include "lab/experiment_parts.h"

namespace qkv::lab {
namespace {

constexpr Index kChunk = 1024;  // pairs at a time, for memory
constexpr Index kValueWidth = 64;

/// [N,1,1,Dk]
Tensor<double, 4> draw(const Components& components, Index count, Index width,
                       NormalNumbers& numbers) {
  const double shared = std::sqrt(components.correlation);
  const double own = std::sqrt(1 - components.correlation);
  auto vectors = numbers.tensor<double, 4>({count, 1, 1, width});
  for (Index n = 0; n < count; ++n) {
    const double common = components.correlation > 0 ? shared * numbers.next() : 0;
    for (Index d = 0; d < width; ++d) {
      double& element = vectors(n, 0, 0, d);
      element = components.mean + components.deviation * (common + own * element);
    }
  }
  return vectors;
}

/// Sums of the first two powers.
struct Moments {
  double count = 0;
  double sum = 0;
  double squares = 0;

  void add(const Tensor<double, 3>& values) {
    for (const double value : values.elements()) {
      ++count;
      sum += value;
      squares += value * value;
    }
  }
  double variance() const {
    const double mean = sum / count;
    return (squares / count - mean * mean) * count / (count - 1);
  }
};

double entropy_of(std::span<const double> weights) {
  double entropy = 0;
  for (const double weight : weights) {
    if (weight > 0) entropy -= weight * std::log(weight);
  }
  return entropy;
}

void add_weights(SoftmaxState& state, Index tokens) {
  const auto row_length = static_cast<std::size_t>(tokens);
  const auto rows = static_cast<double>(tokens);
  for (Index t = 0; t < tokens; ++t) {
    const std::span<const double> row(&state.weights(0, 0, t, 0), row_length);
    state.entropy += entropy_of(row) / std::log(rows) / rows;
    state.largest_weight += *std::max_element(row.begin(), row.end()) / rows;
  }
}

void add_gradients(SoftmaxState& state, const Tensor<double, 4>& gradient) {
  const Index tokens = gradient.shape(2);
  std::vector<double> magnitudes;
  for (Index t = 0; t < tokens; ++t) {
    double squares = 0;
    for (Index s = 0; s < tokens; ++s) {
      const double entry = gradient(0, 0, t, s);
      squares += entry * entry;
      magnitudes.push_back(std::fabs(entry));
    }
    state.gradient_norm += std::sqrt(squares) / static_cast<double>(tokens);
  }
  const auto small = std::count_if(magnitudes.begin(), magnitudes.end(),
                                   [](double magnitude) { return magnitude < kNearlyZero; });
  state.nearly_zero = static_cast<double>(small) / static_cast<double>(magnitudes.size());
  state.gradient_median = bench::median(std::move(magnitudes));
}

}  // namespace

double Components::dot_variance(Index width) const {
  const auto n = static_cast<double>(width);
  const double variance = deviation * deviation;
  const double trace_of_square =
      variance * variance * (n + n * (n - 1) * correlation * correlation);
  const double sum_of_covariance = variance * (n + n * (n - 1) * correlation);
  return trace_of_square + 2 * mean * mean * sum_of_covariance;
}

LogitVariance logit_variance(const LogitRequest& request, const engine::Options& options) {
  NormalNumbers numbers(request.seed);
  Moments unscaled;
  Moments scaled;
  for (Index begin = 0; begin < request.pairs; begin += kChunk) {
    const Index count = std::min(kChunk, request.pairs - begin);
    const Tensor<double, 4> query = draw(request.components, count, request.width, numbers);
    const Tensor<double, 4> key = draw(request.components, count, request.width, numbers);
    const Tensor<double, 4> value({count, 1, 1, 1});
    Tensor<double, 4> context({count, 1, 1, 1});
    Tensor<double, 3> logits({count, 1, 1});
    AttentionInputs<double> inputs{.query = query.view(), .key = key.view(), .value = value.view()};
    const AttentionOutputs<double> outputs{.context = context.view(), .log_sum_exp = logits.view()};
    engine::forward(inputs, outputs, options);
    scaled.add(logits);
    inputs.scale = 1;
    engine::forward(inputs, outputs, options);
    unscaled.add(logits);
  }
  return {unscaled.variance(), scaled.variance()};
}

SoftmaxState softmax_state(const SoftmaxRequest& request, const engine::Options& options) {
  const Index tokens = request.tokens;
  NormalNumbers numbers(request.seed);
  const auto query = numbers.tensor<double, 4>({1, 1, tokens, request.width});
  const auto key = numbers.tensor<double, 4>({1, 1, tokens, request.width});
  const auto value = numbers.tensor<double, 4>({1, 1, tokens, kValueWidth});
  const auto context_gradient =
      numbers.tensor<double, 4>(value.shape(), 1 / std::sqrt(static_cast<double>(kValueWidth)));
  const Tensor<double, 4> bias({1, 1, tokens, tokens});
  const AttentionInputs<double> inputs{.query = query.view(),
                                       .key = key.view(),
                                       .value = value.view(),
                                       .scale = request.scale,
                                       .bias = bias.view()};

  SoftmaxState state;
  state.weights = Tensor<double, 4>(bias.shape());
  Tensor<double, 4> context(value.shape());
  Tensor<double, 3> log_sum_exp({1, 1, tokens});
  engine::forward(inputs,
                  {.context = context.view(),
                   .weights = state.weights.view(),
                   .log_sum_exp = log_sum_exp.view()},
                  options);
  Tensor<double, 4> query_gradient(query.shape());
  Tensor<double, 4> key_gradient(key.shape());
  Tensor<double, 4> value_gradient(value.shape());
  Tensor<double, 4> logit_gradient(bias.shape());
  engine::backward(inputs, {.context = context.view(), .log_sum_exp = log_sum_exp.view()},
                   {.context = context_gradient.view()},
                   {.query = query_gradient.view(),
                    .key = key_gradient.view(),
                    .value = value_gradient.view(),
                    .bias = logit_gradient.view()},
                   options);
  add_weights(state, tokens);
  add_gradients(state, logit_gradient);
  return state;
}

}  // namespace qkv::lab
