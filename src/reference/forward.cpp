#include "qkv/reference.h"
#include "reference/head.h"

namespace qkv::reference {
namespace {

/// Step 2, aggregate: context[t,:] = Σ_s weights[t,s]·v[s,:] over the visible keys.
void aggregate(const Head& head, const HeadScores& scores, Index t,
               const TensorView<double, 4>& context) {
  for (Index d = 0; d < head.value.shape(1); ++d) context(head.b, head.h, t, d) = 0;
  for (Index s = 0; s < head.value.shape(0); ++s) {
    if (!scores.visible(t, s)) continue;
    const double weight = scores.weights(t, s);
    for (Index d = 0; d < head.value.shape(1); ++d) {
      context(head.b, head.h, t, d) += weight * head.value(s, d);
    }
  }
}

void return_row(const Head& head, const HeadScores& scores, Index t,
                const AttentionOutputs<double>& outputs) {
  if (outputs.log_sum_exp) (*outputs.log_sum_exp)(head.b, head.h, t) = scores.log_sum_exp(t);
  if (!outputs.weights) return;
  for (Index s = 0; s < head.key.shape(0); ++s) {
    (*outputs.weights)(head.b, head.h, t, s) = scores.weights(t, s);
  }
}

}  // namespace

template <class T>
void forward(const AttentionInputs<T>& inputs, const AttentionOutputs<double>& outputs) {
  constexpr std::string_view kOperation = "reference::forward";
  const AttentionPlan plan = validate_inputs(kOperation, inputs);
  const AttentionShape& shape = plan.shape;
  validate_outputs(kOperation, inputs, shape, outputs);
  if (shape.batch == 0 || shape.heads == 0 || shape.queries == 0) return;

  Head head(shape);
  HeadScores scores(shape);
  for (Index b = 0; b < shape.batch; ++b) {
    for (Index h = 0; h < shape.heads; ++h) {
      load_head(inputs, plan, b, h, head);
#pragma omp parallel for schedule(dynamic)
      for (Index t = 0; t < shape.queries; ++t) {
        match(inputs, plan, head, t, scores);
        aggregate(head, scores, t, outputs.context);
        return_row(head, scores, t, outputs);
      }
    }
  }
}

template void forward(const AttentionInputs<double>&, const AttentionOutputs<double>&);
template void forward(const AttentionInputs<float>&, const AttentionOutputs<double>&);
template void forward(const AttentionInputs<Float16>&, const AttentionOutputs<double>&);
template void forward(const AttentionInputs<BFloat16>&, const AttentionOutputs<double>&);

}  // namespace qkv::reference
