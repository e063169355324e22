// The module against what layers of published models computed, from data/: each shape on the way from x
// to out.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/module/module_data.h"

namespace qkv {
namespace {

using cases::difference;

constexpr double kTolerance = 1e-5;

struct Layer {
  explicit Layer(const std::string& name)
      : file(read_tensors(QKV_SOURCE_DIR "/data/" + name + ".safetensors")) {}

  /// The file holds activations too; a module is loaded from the parameters alone.
  TensorFile parameters() const {
    TensorFile result;
    result.metadata = file.metadata;
    for (const auto& [name, tensor] : file.tensors) {
      if (name.find("_proj.") != std::string::npos) result.tensors.emplace(name, tensor);
    }
    return result;
  }

  template <int Rank>
  Tensor<float, Rank> get(const std::string& name) const {
    return file.at(name).to<float, Rank>(name);
  }

  Mask padding() const {
    const auto flags = file.at("attention_mask").to<bool, 2>("attention_mask");
    return Mask::key_padding(flags.view(), Polarity::Keep);
  }

  TensorFile file;
};

/// Largest difference, relative to the largest entry, over the tokens whose log-sum-exp is finite.
double difference_in_seeing_rows(const Tensor<float, 3>& actual, const Tensor<float, 3>& expected,
                                 const Tensor<float, 3>& log_sum_exp) {
  std::vector<float> ours;
  std::vector<float> theirs;
  for (Index b = 0; b < actual.shape(0); ++b) {
    for (Index t = 0; t < actual.shape(1); ++t) {
      if (std::isinf(log_sum_exp(b, 0, t))) continue;
      for (Index d = 0; d < actual.shape(2); ++d) {
        ours.push_back(actual(b, t, d));
        theirs.push_back(expected(b, t, d));
      }
    }
  }
  return difference(ours, theirs);
}

Tensor<float, 4> heads_of(const Tensor<float, 3>& projection, Index heads) {
  return contiguous_copy(split_heads(projection.view(), heads));
}

class MiniLm : public testing::TestWithParam<std::string> {};

TEST_P(MiniLm, EveryShapeFromInputToOutput) {
  const Layer layer(GetParam());
  const auto module = load_parameters<float>(layer.parameters(), {});
  EXPECT_EQ(module.options().heads, 12);
  EXPECT_TRUE(module.options().biases.query && module.options().biases.output);

  const auto x = layer.get<3>("x");
  const auto result =
      module.forward({.query = x.view(), .mask = layer.padding()}, ReturnWeights::Yes);
  EXPECT_LE(difference(result.query_heads, layer.get<4>("q")), kTolerance);
  EXPECT_LE(difference(result.key_heads, layer.get<4>("k")), kTolerance);
  EXPECT_LE(difference(heads_of(result.value_projection, 12), layer.get<4>("v")), kTolerance);
  EXPECT_LE(difference(*result.weights, layer.get<4>("weights")), kTolerance);
  EXPECT_LE(difference(merge_heads(result.context.view()), layer.get<3>("context")), kTolerance);
  EXPECT_LE(difference(result.output, layer.get<3>("out")), kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Layers, MiniLm, testing::Values("minilm-layer0", "minilm-layer4"),
                         [](const auto& test) { return test.param.substr(7); });

TEST(SmolLm2, EveryShapeFromInputToOutput) {
  const Layer layer("smollm2-layer11");
  const auto module =
      load_parameters<float>(layer.parameters(), {.rotary = RotaryOptions{.base = 100000}});
  EXPECT_EQ(module.options().heads, 9);
  EXPECT_EQ(module.options().kv_heads, 3);

  const auto x = layer.get<3>("x");
  const auto positions = layer.file.at("position_ids").to<Index, 2>("position_ids");
  const auto result = module.forward({.query = x.view(),
                                      .mask = Mask::causal() & layer.padding(),
                                      .query_positions = positions.view()});
  EXPECT_LE(difference(heads_of(result.query_projection, 9), layer.get<4>("q_before_rope")),
            kTolerance);
  EXPECT_LE(difference(heads_of(result.key_projection, 3), layer.get<4>("k_before_rope")),
            kTolerance);
  EXPECT_LE(difference(result.query_heads, layer.get<4>("q")), kTolerance);
  EXPECT_LE(difference(result.key_heads, layer.get<4>("k")), kTolerance);
  EXPECT_LE(difference_in_seeing_rows(merge_heads(result.context.view()), layer.get<3>("context"),
                                      result.log_sum_exp),
            kTolerance);
  EXPECT_LE(difference_in_seeing_rows(result.output, layer.get<3>("out"), result.log_sum_exp),
            kTolerance);
}

TEST(SmolLm2, RotaryPositionsAlone) {
  const Layer layer("smollm2-layer11");
  const auto positions = layer.file.at("position_ids").to<Index, 2>("position_ids");
  for (const std::string name : {"q", "k"}) {
    Tensor<float, 4> heads = layer.get<4>(name + "_before_rope");
    apply_rotary<float>(heads.view(), positions.view(), {.base = 100000}, heads.view());
    EXPECT_LE(difference(heads, layer.get<4>(name)), 1e-6) << name;
  }
}

}  // namespace
}  // namespace qkv
