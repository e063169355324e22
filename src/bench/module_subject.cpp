#include "bench/module_subject.h"

#include <cmath>
#include <optional>

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

/// gradient·W: what comes back through x·Wᵀ.
Tensor<double, 3> project_back(const TensorView<const double, 3>& gradient,
                               const Tensor<float, 2>& weight) {
  Tensor<double, 3> result({gradient.shape(0), gradient.shape(1), weight.shape(1)});
  for (Index b = 0; b < gradient.shape(0); ++b) {
    for (Index t = 0; t < gradient.shape(1); ++t) {
      for (Index out = 0; out < weight.shape(0); ++out) {
        for (Index in = 0; in < weight.shape(1); ++in) {
          result(b, t, in) += gradient(b, t, out) * static_cast<double>(weight(out, in));
        }
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
        parameters_(save_parameters(module_, ParameterNaming::PyTorch)),
        output_gradient_(draw_.normal<float, 3>(input_.shape())) {}

  Call ours() override {
    return [this](const engine::Options& /*the module takes none*/) {
      const MultiHeadAttentionInputs<float> inputs{.query = input_.view()};
      result_ = {};
      result_ = module_.forward(inputs);
      if (!backward()) return;
      gradients_.reset();
      gradients_ = module_.backward(inputs, result_, output_gradient_.view());
    };
  }

  TensorFile results() const override {
    TensorFile results;
    results.tensors["output"] = shared(result_.output);
    if (gradients_) results.tensors["random.query"] = shared(gradients_->query);
    return results;
  }

  PeerCall peer_call() const override {
    PeerCall call;
    call.function = peer_function::module_cpp;
    call.heads = case_.heads;
    call.inputs = parameters_;
    call.inputs.tensors["query"] = shared(input_);
    if (backward()) call.inputs.tensors["output_gradient"] = shared(output_gradient_);
    return call;
  }

  /// The last sample alone.
  void run_oracle() override {
    const auto& parameters = module_.parameters();
    const Tensor<double, 3> x = last_sample(input_);
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
    if (backward()) expect_gradient(inputs);
  }

  double oracle_flops() const override { return case_.flops() / static_cast<double>(case_.batch); }

  OracleCheck check(const TensorFile& results) const override {
    const OracleCheck output = check_last_sample(results.at("output"), expected_);
    if (!backward()) return output;
    const OracleCheck gradient = check_last_sample(results.at("random.query"), expected_gradient_);
    return gradient.difference > output.difference ? gradient : output;
  }

 private:
  bool backward() const { return case_.pass == Pass::ForwardBackward; }

  OracleCheck check_last_sample(const StoredTensor& result,
                                const Tensor<double, 3>& expected) const {
    const Tensor<float, 3> got = result.to<float, 3>("result");
    DifferenceFromOracle difference;
    for (Index t = 0; t < case_.tokens; ++t) {
      for (Index d = 0; d < case_.model_width(); ++d) {
        difference.add(static_cast<double>(got(case_.batch - 1, t, d)), expected(0, t, d));
      }
    }
    return difference.against(allowed_difference(case_.dtype));
  }

  Tensor<double, 3> last_sample(const Tensor<float, 3>& all) const {
    Tensor<double, 3> sample({1, case_.tokens, case_.model_width()});
    for (Index t = 0; t < case_.tokens; ++t) {
      for (Index d = 0; d < case_.model_width(); ++d) {
        sample(0, t, d) = static_cast<double>(all(case_.batch - 1, t, d));
      }
    }
    return sample;
  }

  /// Through the output projection, the attention, and the three projections of the input.
  void expect_gradient(const AttentionInputs<double>& inputs) {
    const auto& parameters = module_.parameters();
    const Tensor<double, 3> output_gradient = last_sample(output_gradient_);
    const Tensor<double, 3> merged = project_back(output_gradient.view(), parameters.output_weight);
    Tensor<double, 4> query({1, case_.heads, case_.tokens, case_.width});
    Tensor<double, 4> key(query.shape());
    Tensor<double, 4> value(query.shape());
    reference::backward(
        inputs, AttentionOutputGradients<double>{split_heads(merged.view(), case_.heads), {}, {}},
        AttentionInputGradients<double>{query.view(), key.view(), value.view(), {}, {}});
    expected_gradient_ = Tensor<double, 3>(output_gradient.shape());
    const auto add = [&](const Tensor<double, 4>& heads, const Tensor<float, 2>& weight) {
      const Tensor<double, 3> tokens = merge_heads(heads.view());
      const Tensor<double, 3> part = project_back(tokens.view(), weight);
      for (std::size_t i = 0; i < part.elements().size(); ++i) {
        expected_gradient_.elements()[i] += part.elements()[i];
      }
    };
    add(query, parameters.query_weight);
    add(key, parameters.key_weight);
    add(value, parameters.value_weight);
  }

  BenchCase case_;
  Draw draw_;
  Tensor<float, 3> input_;
  MultiHeadAttention<float> module_;
  TensorFile parameters_;
  Tensor<float, 3> output_gradient_;
  MultiHeadAttentionResult<float> result_;
  std::optional<MultiHeadAttentionGradients<float>> gradients_;
  Tensor<double, 3> expected_gradient_;
  Tensor<double, 3> expected_;
};

}  // namespace

std::unique_ptr<Subject> make_module_subject(const BenchCase& bench_case) {
  return std::make_unique<ModuleSubject>(bench_case);
}

}  // namespace qkv::bench
