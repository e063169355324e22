#include "bench/module_subject.h"

#include <cmath>
#include <optional>

#include "bench/clock.h"
#include "bench/draw.h"
#include "bench/oracle_check.h"
#include "bench/shared_tensor.h"
#include "qkv/multi_head_attention.h"
#include "qkv/reference.h"

namespace qkv::bench {
namespace {

/// x·Wᵀ + b in float64, as it is written.
Tensor<double, 3> project(const TensorView<const double, 3>& x, const Tensor<float, 2>& weight,
                          const Tensor<float, 1>& bias) {
  Tensor<double, 3> result({x.shape(0), x.shape(1), weight.shape(0)});
  for (Index b = 0; b < x.shape(0); ++b) {
    for (Index t = 0; t < x.shape(1); ++t) {
      for (Index out = 0; out < weight.shape(0); ++out) {
        auto sum = static_cast<double>(bias(out));
        for (Index in = 0; in < weight.shape(1); ++in) {
          sum += x(b, t, in) * static_cast<double>(weight(out, in));
        }
        result(b, t, out) = sum;
      }
    }
  }
  return result;
}

MultiHeadAttention<float> draw_module(const BenchCase& one, Draw& draw) {
  MultiHeadAttentionOptions options;
  options.model_width = one.model_width();
  options.heads = one.heads;
  options.biases = ProjectionBiases::all();
  // Projections of N(0,1) that are N(0,1) again.
  const double deviation = 1 / std::sqrt(static_cast<double>(one.model_width()));
  auto parameters = zero_parameters<float>(options);
  for (Tensor<float, 2>* weight : {&parameters.query_weight, &parameters.key_weight,
                                   &parameters.value_weight, &parameters.output_weight}) {
    *weight = draw.normal<float, 2>(weight->shape(), deviation);
  }
  for (auto* bias : {&parameters.query_bias, &parameters.key_bias, &parameters.value_bias,
                     &parameters.output_bias}) {
    *bias = draw.normal<float, 1>((*bias)->shape(), deviation);
  }
  return {options, std::move(parameters)};
}

class ModuleSubject : public Subject {
 public:
  explicit ModuleSubject(const BenchCase& bench_case)
      : case_(bench_case),
        input_(draw_.normal<float, 3>({case_.batch, case_.tokens, case_.model_width()})),
        module_(draw_module(case_, draw_)),
        parameters_(save_parameters(module_, ParameterNaming::PyTorch)) {
    expect();
  }

  Call ours() override {
    if (case_.pass != Pass::Forward) return {};
    return [this](const engine::Options& /*of the engine*/) {
      output_ = {};
      output_ = module_.forward({.query = input_.view()}).output;
    };
  }

  StoredTensor output() const override { return shared(output_); }

  PeerCall peer_call() const override {
    PeerCall call;
    call.function = peer_function::module_cpp;
    call.heads = case_.heads;
    call.inputs = parameters_;
    call.inputs.tensors["query"] = shared(input_);
    return call;
  }

  OracleCheck check(const StoredTensor& output) const override {
    const Tensor<float, 3> got = output.to<float, 3>("output");
    DifferenceFromOracle difference;
    const Index last = case_.batch - 1;
    for (Index t = 0; t < case_.tokens; ++t) {
      for (Index d = 0; d < case_.model_width(); ++d) {
        difference.add(static_cast<double>(got(last, t, d)), expected_(0, t, d));
      }
    }
    return difference.against(allowed_difference(case_.dtype));
  }

  double oracle_speed() const override { return oracle_speed_; }

 private:
  /// The last sample alone.
  void expect() {
    const auto& parameters = module_.parameters();
    const double begin = now();
    Tensor<double, 3> x({1, case_.tokens, case_.model_width()});
    for (Index t = 0; t < case_.tokens; ++t) {
      for (Index d = 0; d < case_.model_width(); ++d) {
        x(0, t, d) = static_cast<double>(input_(case_.batch - 1, t, d));
      }
    }
    const TensorView<const double, 3> tokens = x.view();
    const Tensor<double, 3> query =
        project(tokens, parameters.query_weight, *parameters.query_bias);
    const Tensor<double, 3> key = project(tokens, parameters.key_weight, *parameters.key_bias);
    const Tensor<double, 3> value =
        project(tokens, parameters.value_weight, *parameters.value_bias);
    Tensor<double, 4> context({1, case_.heads, case_.tokens, case_.width});
    AttentionInputs<double> inputs;
    inputs.query = split_heads(query.view(), case_.heads);
    inputs.key = split_heads(key.view(), case_.heads);
    inputs.value = split_heads(value.view(), case_.heads);
    reference::forward(inputs, AttentionOutputs<double>{context.view(), {}, {}});
    const Tensor<double, 3> merged = merge_heads(context.view());
    expected_ = project(merged.view(), parameters.output_weight, *parameters.output_bias);
    BenchCase sample = case_;
    sample.batch = 1;
    sample.pass = Pass::Forward;
    oracle_speed_ = sample.flops() / (now() - begin);
  }

  BenchCase case_;
  Draw draw_;
  Tensor<float, 3> input_;
  MultiHeadAttention<float> module_;
  TensorFile parameters_;
  Tensor<float, 3> output_;
  Tensor<double, 3> expected_;
  double oracle_speed_ = 0;
};

}  // namespace

std::unique_ptr<Subject> make_module_subject(const BenchCase& bench_case) {
  return std::make_unique<ModuleSubject>(bench_case);
}

}  // namespace qkv::bench
