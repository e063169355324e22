#include "module/attention_core.h"

#include <type_traits>

#include "qkv/reference.h"

namespace qkv {
namespace {

template <int Rank>
Tensor<double, Rank> widened(const TensorView<const float, Rank>& view) {
  Tensor<double, Rank> result(view.shape());
  double* next = result.data();
  detail::for_each_offset(view.shape(), view.strides(), [&](std::ptrdiff_t offset) {
    *next++ = static_cast<double>(view.data()[offset]);
  });
  return result;
}

template <int Rank>
void round_into(const Tensor<double, Rank>& source, const TensorView<float, Rank>& target) {
  const double* next = source.data();
  detail::for_each_offset(target.shape(), target.strides(), [&](std::ptrdiff_t offset) {
    target.data()[offset] = static_cast<float>(*next++);
  });
}

/// A float64 tensor of the shape of a view that may be absent, and its view.
template <int Rank>
struct Scratch {
  explicit Scratch(const std::optional<TensorView<float, Rank>>& target) {
    if (!target) return;
    tensor.emplace(target->shape());
    view = tensor->view();
  }

  void round_into(const std::optional<TensorView<float, Rank>>& target) const {
    if (target) qkv::round_into(*tensor, *target);
  }

  std::optional<Tensor<double, Rank>> tensor;
  std::optional<TensorView<double, Rank>> view;
};

/// Whether a row of gradients reaches the loss.
template <class T>
bool row_counts(const AttentionOutputGradients<T>& gradients, Index b, Index h, Index t) {
  for (Index d = 0; d < gradients.context.shape(3); ++d) {
    if (gradients.context(b, h, t, d) != T{0}) return true;
  }
  if (!gradients.weights) return false;
  for (Index s = 0; s < gradients.weights->shape(3); ++s) {
    if ((*gradients.weights)(b, h, t, s) != T{0}) return true;
  }
  return false;
}

/// Hides every key from the queries whose results nobody uses: 0·NaN would poison the gradients of the keys
/// that such a query sees.
template <class T>
Mask without_unused_queries(const Mask& mask, const AttentionOutputGradients<T>& gradients) {
  const auto [batch, heads, queries, width] = gradients.context.shape();
  Tensor<bool, 4> used({batch, heads, queries, 1});
  bool all = true;
  for (Index b = 0; b < batch; ++b) {
    for (Index h = 0; h < heads; ++h) {
      for (Index t = 0; t < queries; ++t) {
        used(b, h, t, 0) = row_counts(gradients, b, h, t);
        all = all && used(b, h, t, 0);
      }
    }
  }
  return all ? mask : mask & Mask::boolean(used.view(), Polarity::Keep);
}

}  // namespace

template <class T>
void core_forward(const AttentionInputs<T>& inputs, const AttentionOutputs<T>& outputs) {
  if constexpr (std::is_same_v<T, double>) {
    reference::forward(inputs, outputs);
  } else {
    Tensor<double, 4> context(outputs.context.shape());
    const Scratch<4> weights(outputs.weights);
    const Scratch<3> log_sum_exp(outputs.log_sum_exp);
    reference::forward(
        inputs,
        {.context = context.view(), .weights = weights.view, .log_sum_exp = log_sum_exp.view});
    round_into(context, outputs.context);
    weights.round_into(outputs.weights);
    log_sum_exp.round_into(outputs.log_sum_exp);
  }
}

template <class T>
void core_backward(const AttentionInputs<T>& inputs,
                   const AttentionOutputGradients<T>& output_gradients,
                   const AttentionInputGradients<T>& input_gradients) {
  AttentionInputs<T> used = inputs;
  used.mask = without_unused_queries(inputs.mask, output_gradients);
  if constexpr (std::is_same_v<T, double>) {
    reference::backward(used, output_gradients, input_gradients);
  } else {
    const Tensor<double, 4> context_gradient = widened(output_gradients.context);
    std::optional<Tensor<double, 4>> weights_gradient;
    AttentionOutputGradients<double> upstream{
        .context = context_gradient.view(), .weights = std::nullopt, .log_sum_exp = std::nullopt};
    if (output_gradients.weights) {
      weights_gradient = widened(*output_gradients.weights);
      upstream.weights = std::as_const(*weights_gradient).view();
    }
    Tensor<double, 4> query(input_gradients.query.shape());
    Tensor<double, 4> key(input_gradients.key.shape());
    Tensor<double, 4> value(input_gradients.value.shape());
    const Scratch<4> bias(input_gradients.bias);
    reference::backward(used, upstream,
                        {.query = query.view(),
                         .key = key.view(),
                         .value = value.view(),
                         .bias = bias.view,
                         .sink = std::nullopt});
    round_into(query, input_gradients.query);
    round_into(key, input_gradients.key);
    round_into(value, input_gradients.value);
    bias.round_into(input_gradients.bias);
  }
}

template void core_forward(const AttentionInputs<double>&, const AttentionOutputs<double>&);
template void core_forward(const AttentionInputs<float>&, const AttentionOutputs<float>&);
template void core_backward(const AttentionInputs<double>&, const AttentionOutputGradients<double>&,
                            const AttentionInputGradients<double>&);
template void core_backward(const AttentionInputs<float>&, const AttentionOutputGradients<float>&,
                            const AttentionInputGradients<float>&);

}  // namespace qkv
