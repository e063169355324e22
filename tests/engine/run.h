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

}  // namespace qkv::cases
