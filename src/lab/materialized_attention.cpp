#include "lab/materialized_attention.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/matrix_product.h"

namespace qkv::lab {
namespace {

using Matrix = engine::MatrixView<float>;

/// Head h of sample b.
Matrix head(const Tensor<float, 4>& tensor, Index b, Index h) {
  return {&tensor(b, h, 0, 0), tensor.shape(2), tensor.shape(3), tensor.shape(3), 1};
}

void softmax_rows(float scale, Index keys, std::span<float> scores) {
#pragma omp parallel for
  for (std::size_t begin = 0; begin < scores.size(); begin += static_cast<std::size_t>(keys)) {
    const std::span<float> row = scores.subspan(begin, static_cast<std::size_t>(keys));
    const float largest = *std::max_element(row.begin(), row.end());
    float sum = 0;
    for (float& entry : row) {
      entry = std::exp(scale * (entry - largest));
      sum += entry;
    }
    for (float& entry : row) entry /= sum;
  }
}

/// dP becomes dS = scale·P∘(dP − Σ P∘dP).
void softmax_rows_backward(float scale, Index keys, std::span<const float> weights,
                           std::span<float> gradient) {
#pragma omp parallel for
  for (std::size_t begin = 0; begin < weights.size(); begin += static_cast<std::size_t>(keys)) {
    const auto length = static_cast<std::size_t>(keys);
    const std::span<const float> p = weights.subspan(begin, length);
    const std::span<float> dp = gradient.subspan(begin, length);
    float sum = 0;
    for (std::size_t s = 0; s < length; ++s) sum += p[s] * dp[s];
    for (std::size_t s = 0; s < length; ++s) dp[s] = scale * p[s] * (dp[s] - sum);
  }
}

}  // namespace

TrainingResults train_materialized(const TrainingInputs& inputs, const engine::Options& options) {
  const auto [batch, heads, tokens, width] = inputs.query.shape();
  const float scale = 1 / std::sqrt(static_cast<float>(width));
  const Extents<4> shape = inputs.query.shape();
  TrainingResults results{Tensor<float, 4>(shape), Tensor<float, 4>(shape), Tensor<float, 4>(shape),
                          Tensor<float, 4>(shape)};
  const auto multiply = [&](const Matrix& a, const Matrix& b, float* c) {
    engine::multiply(a, b, engine::Result::Replaced, c, options);
  };
  auto weights = Tensor<float, 4>::uninitialized({batch, heads, tokens, tokens});
  const auto entries = static_cast<std::size_t>(tokens * tokens);
  for (Index b = 0; b < batch; ++b) {
    for (Index h = 0; h < heads; ++h) {
      float* scores = &weights(b, h, 0, 0);
      multiply(head(inputs.query, b, h), head(inputs.key, b, h).transposed(), scores);
      softmax_rows(scale, tokens, {scores, entries});
      multiply(head(weights, b, h), head(inputs.value, b, h), &results.context(b, h, 0, 0));
    }
  }
  auto gradient = Tensor<float, 4>::uninitialized({1, 1, tokens, tokens});
  for (Index b = 0; b < batch; ++b) {
    for (Index h = 0; h < heads; ++h) {
      const Matrix context_gradient = head(inputs.context_gradient, b, h);
      multiply(head(weights, b, h).transposed(), context_gradient,
               &results.value_gradient(b, h, 0, 0));
      multiply(context_gradient, head(inputs.value, b, h).transposed(), gradient.data());
      softmax_rows_backward(scale, tokens, {&weights(b, h, 0, 0), entries}, gradient.elements());
      const Matrix score_gradient = head(gradient, 0, 0);
      multiply(score_gradient, head(inputs.key, b, h), &results.query_gradient(b, h, 0, 0));
      multiply(score_gradient.transposed(), head(inputs.query, b, h),
               &results.key_gradient(b, h, 0, 0));
    }
  }
  return results;
}

TrainingResults train_tiled(const TrainingInputs& inputs, const engine::Options& options) {
  const Extents<4> shape = inputs.query.shape();
  TrainingResults results{Tensor<float, 4>(shape), Tensor<float, 4>(shape), Tensor<float, 4>(shape),
                          Tensor<float, 4>(shape)};
  Tensor<float, 3> log_sum_exp({shape[0], shape[1], shape[2]});
  const AttentionInputs<float> views{
      .query = inputs.query.view(), .key = inputs.key.view(), .value = inputs.value.view()};
  engine::forward(views, {.context = results.context.view(), .log_sum_exp = log_sum_exp.view()},
                  options);
  engine::backward(views,
                   {.context = std::as_const(results.context).view(),
                    .log_sum_exp = std::as_const(log_sum_exp).view()},
                   {.context = inputs.context_gradient.view()},
                   {.query = results.query_gradient.view(),
                    .key = results.key_gradient.view(),
                    .value = results.value_gradient.view()},
                   options);
  return results;
}

}  // namespace qkv::lab
