#include "model/block.h"

#include <algorithm>
#include <functional>
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

/// `gradient` is that of what the MLP adds and of `middle` besides; it becomes that of `middle` alone.
template <class T>
MlpParameters<T> run_mlp_backward(const MlpParameters<T>& parameters, const Tensor<T, 3>& middle,
                                  double norm_epsilon, const MlpResult<T>& result,
                                  Tensor<T, 3>& gradient) {
  MlpParameters<T> gradients;
  const TensorView<const T, 3> dy = std::as_const(gradient).view();
  gradients.out_weight = weight_gradient<T>(dy, result.activated.view());
  gradients.out_bias = bias_gradient<T>(dy);
  Tensor<T, 3> hidden(result.activated.shape());
  add_input_gradient<T>(dy, parameters.out_weight, hidden);
  std::transform(hidden.data(), hidden.data() + hidden.elements().size(), result.slope.data(),
                 hidden.data(), std::multiplies<T>());
  gradients.in_weight = weight_gradient<T>(std::as_const(hidden).view(), result.normed.view());
  gradients.in_bias = bias_gradient<T>(std::as_const(hidden).view());
  Tensor<T, 3> normed(result.normed.shape());
  add_input_gradient<T>(std::as_const(hidden).view(), parameters.in_weight, normed);
  gradients.norm = norm_backward(middle, parameters.norm, norm_epsilon, normed, gradient);
  return gradients;
}

}  // namespace

template <class T>
std::pair<Tensor<T, 3>, MlpResult<T>> run_mlp(const MlpParameters<T>& parameters,
                                              const Tensor<T, 3>& middle, double norm_epsilon) {
  MlpResult<T> result;
  result.normed = norm(middle, parameters.norm, norm_epsilon);
  const Extents<3> hidden{middle.shape(0), middle.shape(1), parameters.in_bias.shape(0)};
  result.activated = Tensor<T, 3>::uninitialized(hidden);
  result.slope = Tensor<T, 3>::uninitialized(hidden);
  project(std::as_const(result.normed).view(), parameters.in_weight, some(parameters.in_bias),
          result.activated);
  gelu(result.activated, result.slope);
  auto output = Tensor<T, 3>::uninitialized(middle.shape());
  project(std::as_const(result.activated).view(), parameters.out_weight, some(parameters.out_bias),
          output);
  return {std::move(output), std::move(result)};
}

template <class T>
std::pair<Tensor<T, 3>, BlockResult<T>> run_block(const BlockOptions& options,
                                                  const BlockParameters<T>& parameters,
                                                  Tensor<T, 3> input,
                                                  const std::optional<Tensor<bool, 2>>& keep,
                                                  ReturnWeights return_weights) {
  BlockResult<T> result;
  result.normed = norm(input, parameters.attention_norm, options.norm_epsilon);
  result.attention =
      attend(options.attention, parameters.attention, result.normed, keep, return_weights);
  Tensor<T, 3> output = input;
  result.input = std::move(input);
  add(result.attention.module.output, output);
  if (parameters.mlp) {
    result.middle = output;
    auto [added, mlp] = run_mlp(*parameters.mlp, result.middle, options.norm_epsilon);
    add(added, output);
    result.mlp = std::move(mlp);
  }
  return {std::move(output), std::move(result)};
}

template <class T>
BlockParameters<T> run_block_backward(const BlockOptions& options,
                                      const BlockParameters<T>& parameters,
                                      const std::optional<Tensor<bool, 2>>& keep,
                                      const BlockResult<T>& result, Tensor<T, 3>& gradient) {
  BlockParameters<T> gradients;
  if (parameters.mlp) {
    gradients.mlp = run_mlp_backward(*parameters.mlp, result.middle, options.norm_epsilon,
                                     *result.mlp, gradient);
  }
  BlockAttentionGradients<T> attention = attend_backward(
      options.attention, parameters.attention, result.normed, keep, result.attention, gradient);
  gradients.attention = std::move(attention.parameters);
  gradients.attention_norm = norm_backward(result.input, parameters.attention_norm,
                                           options.norm_epsilon, attention.input, gradient);
  return gradients;
}

template std::pair<Tensor<double, 3>, MlpResult<double>> run_mlp(const MlpParameters<double>&,
                                                                 const Tensor<double, 3>&, double);
template std::pair<Tensor<double, 3>, BlockResult<double>> run_block(
    const BlockOptions&, const BlockParameters<double>&, Tensor<double, 3>,
    const std::optional<Tensor<bool, 2>>&, ReturnWeights);
template BlockParameters<double> run_block_backward(const BlockOptions&,
                                                    const BlockParameters<double>&,
                                                    const std::optional<Tensor<bool, 2>>&,
                                                    const BlockResult<double>&, Tensor<double, 3>&);
template std::pair<Tensor<float, 3>, MlpResult<float>> run_mlp(const MlpParameters<float>&,
                                                               const Tensor<float, 3>&, double);
template std::pair<Tensor<float, 3>, BlockResult<float>> run_block(
    const BlockOptions&, const BlockParameters<float>&, Tensor<float, 3>,
    const std::optional<Tensor<bool, 2>>&, ReturnWeights);
template BlockParameters<float> run_block_backward(const BlockOptions&,
                                                   const BlockParameters<float>&,
                                                   const std::optional<Tensor<bool, 2>>&,
                                                   const BlockResult<float>&, Tensor<float, 3>&);

}  // namespace qkv
