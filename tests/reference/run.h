// Runs the oracle into tensors of its own, for tests.
#pragma once

#include "qkv/reference.h"
#include "tests/cases/attention_cases.h"

namespace qkv::cases {

struct Outputs {
  Tensor<double, 4> context;
  Tensor<double, 4> weights;
  Tensor<double, 3> log_sum_exp;
};

template <class T>
Outputs run_forward(const AttentionInputs<T>& inputs) {
  const auto [batch, heads, queries, key_width] = inputs.query.shape();
  Outputs outputs{Tensor<double, 4>({batch, heads, queries, inputs.value.shape(3)}),
                  Tensor<double, 4>({batch, heads, queries, inputs.key.shape(2)}),
                  Tensor<double, 3>({batch, heads, queries})};
  reference::forward(inputs,
                     {outputs.context.view(), outputs.weights.view(), outputs.log_sum_exp.view()});
  return outputs;
}

struct Gradients {
  Tensor<double, 4> query;
  Tensor<double, 4> key;
  Tensor<double, 4> value;
  std::optional<Tensor<double, 4>> bias;
  std::optional<Tensor<double, 1>> sink;
};

template <class T>
Gradients run_backward(const AttentionInputs<T>& inputs,
                       const AttentionOutputGradients<double>& output_gradients) {
  Gradients result{Tensor<double, 4>(inputs.query.shape()), Tensor<double, 4>(inputs.key.shape()),
                   Tensor<double, 4>(inputs.value.shape()), std::nullopt, std::nullopt};
  AttentionInputGradients<double> views{result.query.view(), result.key.view(), result.value.view(),
                                        std::nullopt, std::nullopt};
  if (inputs.bias) {
    result.bias.emplace(inputs.bias->shape());
    views.bias = result.bias->view();
  }
  if (inputs.sink) {
    result.sink.emplace(inputs.sink->shape());
    views.sink = result.sink->view();
  }
  reference::backward(inputs, output_gradients, views);
  return result;
}

}  // namespace qkv::cases
