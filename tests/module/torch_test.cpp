// The module against PyTorch's nn.MultiheadAttention and the lesson's class, from the values that
// make_torch_goldens.py recorded: output, weights, every gradient.
#include <gtest/gtest.h>

#include "tests/module/module_data.h"

namespace qkv {
namespace {

using cases::difference;

constexpr double kTolerance = 1e-13;

TensorFile golden(const std::string& name) {
  return read_tensors(QKV_SOURCE_DIR "/tests/module/goldens/" + name + ".safetensors");
}

/// The tensors of one recorded case.
class Recorded {
 public:
  Recorded(const TensorFile& file, std::string prefix) : file_(file), prefix_(std::move(prefix)) {}

  template <class T, int Rank>
  Tensor<T, Rank> get(const std::string& name) const {
    return file_.at(prefix_ + name).to<T, Rank>(name);
  }
  Tensor<double, 3> tokens(const std::string& name) const { return get<double, 3>(name); }

  MultiHeadAttention<double> module() const {
    return load_parameters<double>(file_, {.prefix = prefix_ + "module."});
  }

  /// Every derivative with respect to a parameter, under its name in PyTorch.
  void expect_parameter_gradients(const MultiHeadAttention<double>& module,
                                  const MultiHeadAttentionGradients<double>& gradients,
                                  ParameterNaming naming) const {
    const MultiHeadAttention<double> as_module(module.options(), gradients.parameters);
    const TensorFile actual = save_parameters(as_module, naming);
    std::size_t compared = 0;
    for (const auto& [name, tensor] : actual.tensors) {
      const std::string expected = prefix_ + "gradient.module." + name;
      if (tensor.shape().size() == 2) {
        EXPECT_LE(difference(tensor.to<double, 2>(name), file_.at(expected).to<double, 2>(name)),
                  kTolerance)
            << expected;
      } else {
        EXPECT_LE(difference(tensor.to<double, 1>(name), file_.at(expected).to<double, 1>(name)),
                  kTolerance)
            << expected;
      }
      ++compared;
    }
    std::size_t recorded = 0;
    for (const auto& entry : file_.tensors) {
      if (entry.first.starts_with(prefix_ + "gradient.module.")) ++recorded;
    }
    EXPECT_EQ(compared, recorded);
  }

 private:
  const TensorFile& file_;
  std::string prefix_;
};

/// [T,S] as [1,1,T,S].
TensorView<const bool, 4> over_batch_and_heads(const Tensor<bool, 2>& mask) {
  return {mask.data(), {1, 1, mask.shape(0), mask.shape(1)}};
}

struct TorchModule : testing::Test {
  TensorFile file = golden("nn_multihead_attention");

  /// Runs forward and backward and holds output, weights and parameter gradients against the record.
  MultiHeadAttentionGradients<double> run(const MultiHeadAttention<double>& module,
                                          const Recorded& recorded,
                                          const MultiHeadAttentionInputs<double>& inputs) const {
    const auto result = module.forward(inputs, ReturnWeights::Yes);
    EXPECT_LE(difference(result.output, recorded.tokens("output")), kTolerance);
    EXPECT_LE(difference(*result.weights, recorded.get<double, 4>("weights")), kTolerance);
    const auto gradients =
        module.backward(inputs, result, recorded.tokens("output_gradient").view(),
                        recorded.get<double, 4>("weights_gradient").view());
    recorded.expect_parameter_gradients(module, gradients, ParameterNaming::PyTorch);
    return gradients;
  }
};

TEST_F(TorchModule, SelfAttention) {
  const Recorded recorded(file, "self.");
  const auto query = recorded.tokens("query");
  const auto gradients = run(recorded.module(), recorded, {.query = query.view()});
  EXPECT_LE(difference(gradients.query, recorded.tokens("gradient.query")), kTolerance);
}

TEST_F(TorchModule, CausalAndPaddedWithoutBiases) {
  const Recorded recorded(file, "causal_padded.");
  const auto query = recorded.tokens("query");
  const auto padding = recorded.get<bool, 2>("padding");
  const auto gradients =
      run(recorded.module(), recorded,
          {.query = query.view(),
           .mask = Mask::causal() & Mask::key_padding(padding.view(), Polarity::Drop)});
  EXPECT_LE(difference(gradients.query, recorded.tokens("gradient.query")), kTolerance);
}

TEST_F(TorchModule, CrossAttentionOfThreeWidthsUnderABooleanMask) {
  const Recorded recorded(file, "cross_boolean.");
  const auto query = recorded.tokens("query");
  const auto key = recorded.tokens("key");
  const auto value = recorded.tokens("value");
  const auto drop = recorded.get<bool, 2>("drop");
  const auto gradients = run(recorded.module(), recorded,
                             {.query = query.view(),
                              .key = key.view(),
                              .value = value.view(),
                              .mask = Mask::boolean(over_batch_and_heads(drop), Polarity::Drop)});
  EXPECT_LE(difference(gradients.query, recorded.tokens("gradient.query")), kTolerance);
  EXPECT_LE(difference(*gradients.key, recorded.tokens("gradient.key")), kTolerance);
  EXPECT_LE(difference(*gradients.value, recorded.tokens("gradient.value")), kTolerance);
}

TEST_F(TorchModule, CrossAttentionWithAFloatBias) {
  const Recorded recorded(file, "cross_bias.");
  const auto query = recorded.tokens("query");
  const auto key = recorded.tokens("key");
  const auto bias = recorded.tokens("bias");  // [B·H,T,S]
  const MultiHeadAttention<double> module = recorded.module();
  const auto split = view_as<4>(
      bias.view(), {query.shape(0), module.options().heads, bias.shape(1), bias.shape(2)});
  const auto gradients =
      run(module, recorded, {.query = query.view(), .key = key.view(), .bias = split});
  EXPECT_LE(difference(gradients.query, recorded.tokens("gradient.query")), kTolerance);
  EXPECT_LE(difference(*gradients.key, recorded.tokens("gradient.key")), kTolerance);
  EXPECT_LE(
      difference(contiguous_copy(view_as<3>(std::as_const(*gradients.bias).view(), bias.shape())),
                 recorded.tokens("gradient.bias")),
      kTolerance);
}

TEST(LessonModule, CausalAndPaddedFromTheFusedWeight) {
  const TensorFile file = golden("lesson");
  const Recorded recorded(file, "");
  const MultiHeadAttention<double> module = recorded.module();
  const auto query = recorded.tokens("query");
  const auto padding = recorded.get<bool, 2>("padding");
  const MultiHeadAttentionInputs<double> inputs{
      .query = query.view(),
      .mask = Mask::causal() & Mask::key_padding(padding.view(), Polarity::Drop)};
  const auto result = module.forward(inputs, ReturnWeights::Yes);
  EXPECT_LE(difference(result.output, recorded.tokens("output")), kTolerance);
  EXPECT_LE(difference(*result.weights, recorded.get<double, 4>("weights")), kTolerance);

  Tensor<double, 3> ones(result.output.shape());
  for (double& entry : ones.elements()) entry = 1;
  const auto gradients = module.backward(inputs, result, ones.view());
  EXPECT_LE(difference(gradients.query, recorded.tokens("gradient.query")), kTolerance);
  recorded.expect_parameter_gradients(module, gradients, ParameterNaming::Fused);
}

}  // namespace
}  // namespace qkv
