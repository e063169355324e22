// Attributions that follow the target's derivatives: a number a token [T].
#pragma once

#include <span>
#include <vector>

#include "base/progress.h"
#include "explain/explained_model.h"

namespace qkv::explain {

/// Derivatives of the plain run.
Gradients plain_gradients(const ExplainedModel& model);

/// Gradient × attention of a layer [T,T]: the mean over heads of the positive part of ∂target/∂α · α. Sources: Chefer, Gur and Wolf,
/// "Generic Attention-model Explainability for Interpreting Bi-Modal and Encoder-Decoder Transformers" (2021), eq. 5; without
/// propagation Barkan et al., "Grad-SAM" (2021), where every row counts: its columns are summed.
Tensor<double, 2> gradient_times_attention(const LayerRecord& layer,
                                           const TensorView<const double, 3>& weights_gradient);
/// Of one layer: for each key the sum over all queries.
std::vector<double> gradient_times_attention(const Records& records, const Gradients& gradients,
                                             Index layer);
/// Propagated: R = I, then R ← R + Ā·R layer by layer; the rows that the target reads. Source: Chefer et al., eq. 6.
std::vector<double> gradient_attention_rollout(const Records& records, const Gradients& gradients,
                                               const ExplainedText& text);

/// Σ_d x·∂target/∂x of the embeddings. Source: Shrikumar, Greenside, Shcherbina and Kundaje, "Not Just a Black Box" (2016).
std::vector<double> gradient_times_input(const Gradients& gradients, const ExplainedText& text);

struct IntegratedGradients {
  std::vector<double> scores;  ///< [T]
  Index steps = 0;
  double difference = 0;  ///< target − that of the baseline: what the scores should sum to
  double gap = 0;         ///< |sum − difference|
};
/// Along the straight line from the baseline to the embeddings, by the midpoint rule in `steps` steps: its gap falls with the square
/// of their number where the target is smooth. Source: Sundararajan, Taly and Yan, "Axiomatic Attribution for Deep Networks" (2017).
IntegratedGradients integrated_gradients(const ExplainedModel& model, Index steps,
                                         const Progress& progress = {});

struct CompletenessOptions {
  Index fewest_steps = 16;
  Index most_steps = 512;
  double gap = 0.01;  ///< relative to the difference
};
/// Doubles the steps until the gap is small enough, or there are as many as allowed.
IntegratedGradients complete_integrated_gradients(const ExplainedModel& model,
                                                  const CompletenessOptions& options = {},
                                                  const Progress& progress = {});

}  // namespace qkv::explain
