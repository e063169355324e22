#include "model/block.h"

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <utility>

#include "model/elementwise.h"
#include "model/gelu.h"
#include "module/projection.h"

namespace qkv {
namespace {

template <class T>
std::optional<Tensor<T, 1>> some(const Tensor<T, 1>& tensor) {
  return tensor;
}

/// What the MLP makes of `input`, with its activations for the way back.
template <class T>
Tensor<T, 3> apply_mlp(const MlpParameters<T>& parameters, const Tensor<T, 3>& input,
                       MlpResult<T>& result) {
  const Extents<3> hidden{input.shape(0), input.shape(1), parameters.in_bias.shape(0)};
  result.activated = Tensor<T, 3>::uninitialized(hidden);
  result.slope = Tensor<T, 3>::uninitialized(hidden);
  project(input.view(), parameters.in_weight, some(parameters.in_bias), result.activated);
  gelu(result.activated, result.slope);
  auto output = Tensor<T, 3>::uninitialized(input.shape());
  project(std::as_const(result.activated).view(), parameters.out_weight, some(parameters.out_bias),
          output);
  return output;
}

/// Adds the gradient of `input` to input_gradient; `dy` is that of the output.
template <class T>
MlpParameters<T> apply_mlp_backward(const MlpParameters<T>& parameters, const Tensor<T, 3>& input,
                                    const MlpResult<T>& result, const Tensor<T, 3>& dy,
                                    Tensor<T, 3>& input_gradient) {
  MlpParameters<T> gradients;
  gradients.out_weight = weight_gradient<T>(dy.view(), result.activated.view());
  gradients.out_bias = bias_gradient<T>(dy.view());
  Tensor<T, 3> hidden(result.activated.shape());
  add_input_gradient<T>(dy.view(), parameters.out_weight, hidden);
  std::transform(hidden.data(), hidden.data() + hidden.elements().size(), result.slope.data(),
                 hidden.data(), std::multiplies<T>());
  gradients.in_weight = weight_gradient<T>(std::as_const(hidden).view(), input.view());
  gradients.in_bias = bias_gradient<T>(std::as_const(hidden).view());
  add_input_gradient<T>(std::as_const(hidden).view(), parameters.in_weight, input_gradient);
  return gradients;
}

/// The tokens as one head: [B,1,T,D].
template <class T>
TensorView<T, 4> as_head(Tensor<T, 3>& tokens) {
  return {tokens.data(), {tokens.shape(0), 1, tokens.shape(1), tokens.shape(2)}};
}

/// The sites of one half of a block.
struct SumSites {
  BlockSite output;
  BlockSite residual;
};

/// residual + added, edited before.
template <class T>
Tensor<T, 3> sum_of(const Tensor<T, 3>& residual, Tensor<T, 3>& added, const SumSites& sites,
                    const BlockEdit<T>& edit) {
  Tensor<T, 3> sum = residual;
  if (edit) {
    edit(sites.output, as_head(added));
    edit(sites.residual, as_head(sum));
  }
  add(added, sum);
  return sum;
}

}  // namespace

template <class T>
std::pair<Tensor<T, 3>, MlpResult<T>> run_mlp(const MlpParameters<T>& parameters,
                                              const Tensor<T, 3>& middle, double norm_epsilon) {
  MlpResult<T> result;
  result.normed = norm(middle, parameters.norm, norm_epsilon);
  Tensor<T, 3> output = apply_mlp(parameters, result.normed, result);
  return {std::move(output), std::move(result)};
}

template <class T>
MlpParameters<T> run_mlp_backward(const MlpParameters<T>& parameters, const Tensor<T, 3>& middle,
                                  double norm_epsilon, const MlpResult<T>& result,
                                  Tensor<T, 3>& gradient) {
  Tensor<T, 3> of_normed(gradient.shape());
  MlpParameters<T> gradients =
      apply_mlp_backward(parameters, result.normed, result, gradient, of_normed);
  gradients.norm = norm_backward(middle, parameters.norm, norm_epsilon, of_normed, gradient);
  return gradients;
}

template <class T>
std::pair<Tensor<T, 3>, BlockResult<T>> run_block(const BlockOptions& options,
                                                  const BlockParameters<T>& parameters,
                                                  Tensor<T, 3> input,
                                                  const std::optional<Tensor<bool, 2>>& keep,
                                                  ReturnWeights return_weights,
                                                  const BlockEdit<T>& edit) {
  const bool before = options.norms == NormPlacement::Before;
  const auto normed = [&](const Tensor<T, 3>& x, const NormParameters<T>& p) {
    return norm(x, p, options.norm_epsilon);
  };
  BlockResult<T> result;
  result.edited = static_cast<bool>(edit);
  result.input = std::move(input);
  if (before) result.normed = normed(result.input, parameters.attention_norm);
  result.attention = attend(options.attention, parameters.attention, result.attention_input(), keep,
                            return_weights, edit);
  Tensor<T, 3> output = sum_of(result.input, result.attention.module.output,
                               {BlockSite::AttentionOutput, BlockSite::AttentionResidual}, edit);
  if (!before) {
    result.sum = std::move(output);
    output = normed(result.sum, parameters.attention_norm);
  }
  if (!parameters.mlp) return {std::move(output), std::move(result)};

  result.middle = std::move(output);
  MlpResult<T>& mlp = result.mlp.emplace();
  if (before) mlp.normed = normed(result.middle, parameters.mlp->norm);
  Tensor<T, 3> added = apply_mlp(*parameters.mlp, result.mlp_input(), mlp);
  output = sum_of(result.middle, added, {BlockSite::MlpOutput, BlockSite::MlpResidual}, edit);
  if (!before) {
    mlp.sum = std::move(output);
    output = normed(mlp.sum, parameters.mlp->norm);
  }
  return {std::move(output), std::move(result)};
}

template <class T>
BlockGradients<T> run_block_backward(const BlockOptions& options,
                                     const BlockParameters<T>& parameters,
                                     const std::optional<Tensor<bool, 2>>& keep,
                                     const BlockResult<T>& result, Tensor<T, 3>& gradient) {
  if (result.edited) {
    throw std::invalid_argument("run_block_backward: result: expected one without edits, got one");
  }
  const bool before = options.norms == NormPlacement::Before;
  // From a norm's output to its input: the gradient of the sum, where norms come after.
  const auto through_norm = [&](const Tensor<T, 3>& sum, const NormParameters<T>& p) {
    Tensor<T, 3> of_sum(gradient.shape());
    NormParameters<T> of_norm = norm_backward(sum, p, options.norm_epsilon, gradient, of_sum);
    gradient = std::move(of_sum);
    return of_norm;
  };
  BlockGradients<T> gradients;
  BlockParameters<T>& dp = gradients.parameters;
  if (parameters.mlp && before) {
    dp.mlp = run_mlp_backward(*parameters.mlp, result.middle, options.norm_epsilon, *result.mlp,
                              gradient);
  } else if (parameters.mlp) {
    NormParameters<T> of_norm = through_norm(result.mlp->sum, parameters.mlp->norm);
    Tensor<T, 3> of_input(gradient.shape());
    dp.mlp = apply_mlp_backward(*parameters.mlp, result.middle, *result.mlp, gradient, of_input);
    dp.mlp->norm = std::move(of_norm);
    add(of_input, gradient);
  }
  if (!before) dp.attention_norm = through_norm(result.sum, parameters.attention_norm);
  gradients.attention_output = gradient;
  BlockAttentionGradients<T> attention =
      attend_backward(options.attention, parameters.attention, result.attention_input(), keep,
                      result.attention, gradient);
  dp.attention = std::move(attention.parameters);
  if (before) {
    dp.attention_norm = norm_backward(result.input, parameters.attention_norm, options.norm_epsilon,
                                      attention.input, gradient);
  } else {
    add(attention.input, gradient);
  }
  return gradients;
}

// Names without commas, which clang-tidy takes for macro arguments of their own.
template <class T>
using MlpRun = std::pair<Tensor<T, 3>, MlpResult<T>>;
template <class T>
using BlockRun = std::pair<Tensor<T, 3>, BlockResult<T>>;

#define QKV_INSTANTIATE_BLOCK(T)                                                                   \
  template MlpRun<T> run_mlp(const MlpParameters<T>&, const Tensor<T, 3>&, double);                \
  template MlpParameters<T> run_mlp_backward(const MlpParameters<T>&, const Tensor<T, 3>&, double, \
                                             const MlpResult<T>&, Tensor<T, 3>&);                  \
  template BlockRun<T> run_block(const BlockOptions&, const BlockParameters<T>&, Tensor<T, 3>,     \
                                 const std::optional<Tensor<bool, 2>>&, ReturnWeights,             \
                                 const BlockEdit<T>&);                                             \
  template BlockGradients<T> run_block_backward(const BlockOptions&, const BlockParameters<T>&,    \
                                                const std::optional<Tensor<bool, 2>>&,             \
                                                const BlockResult<T>&, Tensor<T, 3>&);

QKV_INSTANTIATE_BLOCK(double)
QKV_INSTANTIATE_BLOCK(float)

#undef QKV_INSTANTIATE_BLOCK

}  // namespace qkv
