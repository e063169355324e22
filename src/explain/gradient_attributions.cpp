#include "explain/gradient_attributions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "engine/matrix_product.h"
#include "explain/attention_attributions.h"
#include "explain/occlusion.h"

namespace qkv::explain {
namespace {

constexpr Index kBatchTokens = 1024;

/// Of the run with number 0: [H,T,T].
TensorView<const double, 3> weights_gradient(const Gradients& gradients, std::size_t layer) {
  const Tensor<double, 4>& all = gradients.weights.at(layer);
  return {all.data(), {all.shape(1), all.shape(2), all.shape(3)}};
}

/// x' + α·(x − x') for `count` midpoints from step `first` of `steps`.
Tensor<double, 3> points(const ExplainedText& text, Index first, Index count, Index steps) {
  const auto [tokens, width] = text.embeddings.shape();
  auto result = Tensor<double, 3>::uninitialized({count, tokens, width});
  double* next = result.data();
  for (Index i = 0; i < count; ++i) {
    const double alpha = (static_cast<double>(first + i) + 0.5) / static_cast<double>(steps);
    for (std::size_t e = 0; e < text.embeddings.elements().size(); ++e) {
      const double from = text.baseline.elements()[e];
      *next++ = from + alpha * (text.embeddings.elements()[e] - from);
    }
  }
  return result;
}

}  // namespace

Gradients plain_gradients(const ExplainedModel& model) {
  const Tensor<double, 2>& x = model.text().embeddings;
  Tensor<double, 3> one({1, x.shape(0), x.shape(1)});
  std::ranges::copy(x.elements(), one.data());
  return model.differentiate(one);
}

Tensor<double, 2> gradient_times_attention(const LayerRecord& layer,
                                           const TensorView<const double, 3>& weights_gradient) {
  const auto [heads, queries, keys] = layer.weights.shape();
  Tensor<double, 2> mean({queries, keys});
  for (Index h = 0; h < heads; ++h) {
    for (Index t = 0; t < queries; ++t) {
      for (Index s = 0; s < keys; ++s) {
        mean(t, s) += std::max(0.0, layer.weights(h, t, s) * weights_gradient(h, t, s)) /
                      static_cast<double>(heads);
      }
    }
  }
  return mean;
}

std::vector<double> gradient_times_attention(const Records& records, const Gradients& gradients,
                                             Index layer) {
  const auto at = static_cast<std::size_t>(layer);
  const Tensor<double, 2> matrix =
      gradient_times_attention(records.layers.at(at), weights_gradient(gradients, at));
  const std::vector<double> every(static_cast<std::size_t>(matrix.shape(0)), 1.0);
  return read_rows(matrix, every);
}

std::vector<double> gradient_attention_rollout(const Records& records, const Gradients& gradients,
                                               const ExplainedText& text) {
  const Index tokens = records.last.shape(0);
  Tensor<double, 2> relevance({tokens, tokens});
  for (Index t = 0; t < tokens; ++t) relevance(t, t) = 1;
  for (std::size_t i = 0; i < records.layers.size(); ++i) {
    const Tensor<double, 2> step =
        gradient_times_attention(records.layers[i], weights_gradient(gradients, i));
    const Tensor<double, 2> before = relevance;
    engine::multiply<double>({step.data(), tokens, tokens, tokens},
                             {before.data(), tokens, tokens, tokens}, engine::Result::AddedTo,
                             relevance.data());
  }
  return read_rows(relevance, text.readout);
}

std::vector<double> gradient_times_input(const Gradients& gradients, const ExplainedText& text) {
  const auto [tokens, width] = text.embeddings.shape();
  std::vector<double> scores;
  for (Index t = 0; t < tokens; ++t) {
    scores.push_back(std::inner_product(&text.embeddings(t, 0), &text.embeddings(t, 0) + width,
                                        &gradients.embeddings(0, t, 0), 0.0));
  }
  return scores;
}

IntegratedGradients integrated_gradients(const ExplainedModel& model, Index steps,
                                         const Progress& progress) {
  if (steps < 1) {
    throw std::invalid_argument(
        fmt::format("integrated_gradients: steps: expected 1 or more, got {}", steps));
  }
  const ExplainedText& text = model.text();
  const auto [tokens, width] = text.embeddings.shape();
  Tensor<double, 2> sum({tokens, width});
  const Index at_once = std::max<Index>(1, kBatchTokens / tokens);
  for (Index first = 0; first < steps; first += at_once) {
    const Index count = std::min(at_once, steps - first);
    const Gradients gradients = model.differentiate(points(text, first, count, steps));
    for (Index n = 0; n < count; ++n) {
      std::transform(sum.data(), sum.data() + tokens * width, &gradients.embeddings(n, 0, 0),
                     sum.data(), std::plus<>());
    }
    const double done = static_cast<double>(first + count) / static_cast<double>(steps);
    if (progress && !progress("integrated gradients", done)) throw Interrupted();
  }
  IntegratedGradients result;
  result.steps = steps;
  for (Index t = 0; t < tokens; ++t) {
    double score = 0;
    for (Index d = 0; d < width; ++d) {
      score += (text.embeddings(t, d) - text.baseline(t, d)) * sum(t, d);
    }
    result.scores.push_back(score / static_cast<double>(steps));
  }
  std::vector<Variant> ends(2);
  ends[1].embeddings = text.baseline;
  const std::vector<double> targets = model.run(ends);
  result.difference = targets[0] - targets[1];
  result.gap = std::fabs(std::accumulate(result.scores.begin(), result.scores.end(), 0.0) -
                         result.difference);
  return result;
}

IntegratedGradients complete_integrated_gradients(const ExplainedModel& model,
                                                  const CompletenessOptions& options,
                                                  const Progress& progress) {
  IntegratedGradients result = integrated_gradients(model, options.fewest_steps, progress);
  while (result.gap > options.gap * std::fabs(result.difference) &&
         2 * result.steps <= options.most_steps) {
    result = integrated_gradients(model, 2 * result.steps, progress);
  }
  return result;
}

}  // namespace qkv::explain
