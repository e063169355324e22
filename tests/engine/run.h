// Runs the engine into tensors of its own, for tests.
#pragma once

#include "qkv/engine.h"
#include "tests/cases/attention_cases.h"

namespace qkv::cases {

template <class A>
struct EngineOutputs {
  Tensor<A, 4> context;
  Tensor<A, 4> weights;  ///< empty where not asked for
  Tensor<A, 3> log_sum_exp;
};

inline engine::Options options_on(const std::string& target, int threads) {
  engine::Options options;
  options.target = target;
  options.threads = threads;
  return options;
}

template <class T>
EngineOutputs<engine::Arithmetic<T>> run_engine(const AttentionInputs<T>& inputs,
                                                const engine::Options& options,
                                                bool with_weights = false) {
  using A = engine::Arithmetic<T>;
  const auto [batch, heads, queries, key_width] = inputs.query.shape();
  EngineOutputs<A> outputs{
      Tensor<A, 4>({batch, heads, queries, inputs.value.shape(3)}),
      Tensor<A, 4>({batch, heads, queries, with_weights ? inputs.key.shape(2) : 0}),
      Tensor<A, 3>({batch, heads, queries})};
  AttentionOutputs<A> views{outputs.context.view(), std::nullopt, outputs.log_sum_exp.view()};
  if (with_weights) views.weights = outputs.weights.view();
  engine::forward(inputs, views, options);
  return outputs;
}

template <class T>
struct EngineGradients {
  Tensor<T, 4> query;
  Tensor<T, 4> key;
  Tensor<T, 4> value;
  std::optional<Tensor<T, 4>> bias;
  std::optional<Tensor<T, 1>> sink;
};

/// Forward, then backward.
template <class T>
EngineGradients<T> run_engine_backward(const AttentionInputs<T>& inputs,
                                       const AttentionOutputGradients<T>& upstream,
                                       const engine::Options& options,
                                       engine::Queries queries = engine::Queries::All) {
  const EngineOutputs<T> forward = run_engine(inputs, options);
  EngineGradients<T> result{Tensor<T, 4>(inputs.query.shape()), Tensor<T, 4>(inputs.key.shape()),
                            Tensor<T, 4>(inputs.value.shape()), std::nullopt, std::nullopt};
  AttentionInputGradients<T> views{result.query.view(), result.key.view(), result.value.view(),
                                   std::nullopt, std::nullopt};
  if (inputs.bias) views.bias = result.bias.emplace(inputs.bias->shape()).view();
  if (inputs.sink) views.sink = result.sink.emplace(inputs.sink->shape()).view();
  engine::backward(inputs, {forward.context.view(), forward.log_sum_exp.view()}, upstream, views,
                   options, queries);
  return result;
}

}  // namespace qkv::cases
