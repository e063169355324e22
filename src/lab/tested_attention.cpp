#include "lab/tested_attention.h"

#include <cmath>
#include <utility>

#include "lab/experiment_parts.h"

namespace qkv::lab {
namespace {

/// A bug that drops the rules of position would drop the window with the causal rule: two bugs at once.
bool has_window(const std::optional<AttentionBug>& bug) {
  return !bug || bug == AttentionBug::WindowOffByOne;
}

}  // namespace

TestedAttention::TestedAttention(std::optional<AttentionBug> bug, std::uint64_t seed)
    : options_{.module = {.model_width = kWidth, .heads = kHeads, .kv_heads = kKvHeads},
               .window = has_window(bug) ? std::optional<Index>(kWindow) : std::nullopt,
               .change = {.bug = bug}},
      parameters_{.projections = zero_parameters<double>(options_.module)},
      keep_({2, kTokens}) {
  NormalNumbers numbers(seed);
  input_ = numbers.tensor<double, 3>({2, kTokens, kWidth});
  auto& p = parameters_.projections;
  const double deviation = 1 / std::sqrt(static_cast<double>(kWidth));
  for (Tensor<double, 2>* weight : {&p.query_weight, &p.key_weight, &p.value_weight})
    *weight = numbers.tensor<double, 2>(weight->shape(), deviation);
  for (Index i = 0; i < kWidth; ++i) p.output_weight(i, i) = 1;
  for (Index b = 0; b < 2; ++b) {
    for (Index t = 0; t < kTokens; ++t) keep_(b, t) = b == 1 || t >= kPadding;
  }
}

BlockAttentionResult<double> TestedAttention::run() const { return run(input_); }
BlockAttentionResult<double> TestedAttention::run(const Tensor<double, 3>& input) const {
  return run(input, keep_);
}
BlockAttentionResult<double> TestedAttention::run(const Tensor<double, 3>& input,
                                                  const Tensor<bool, 2>& keep) const {
  return attend(options_, parameters_, input, std::optional(keep), ReturnWeights::Yes);
}
BlockAttentionResult<double> TestedAttention::run_with(
    const BlockAttentionParameters<double>& parameters) const {
  return attend(options_, parameters, input_, std::optional(keep_));
}
BlockAttentionGradients<double> TestedAttention::gradients(
    const Tensor<double, 3>& output_gradient) const {
  return attend_backward(options_, parameters_, input_, std::optional(keep_), run(),
                         output_gradient);
}

Dump TestedAttention::dump() const {
  const MultiHeadAttentionResult<double> result = run().module;
  Dump dump;
  dump.shape = {2, kHeads, kKvHeads, kTokens, kTokens, kHeadWidth, kHeadWidth};
  dump.query = result.query_heads;
  dump.key = result.key_heads;
  dump.value = contiguous_copy(split_heads(result.value_projection.view(), kKvHeads));
  dump.has_heads = true;
  dump.rules.causal = true;
  if (options_.window) dump.rules.window = Window{.left = *options_.window - 1};
  dump.rules.padding = keep_;
  dump.scale = 1 / std::sqrt(static_cast<double>(kHeadWidth));
  dump.stage = OutStage::Merged;
  dump.context = contiguous_copy(split_heads(result.output.view(), kHeads));
  dump.ran_in = DType::Float64;
  return dump;
}

}  // namespace qkv::lab
