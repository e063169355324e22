// The attention of a block against PyTorch, change by change, from the values that make_torch_goldens.py recorded: weights,
// output, every gradient.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>

#include "model/attention.h"
#include "model/changed_attention.h"
#include "tests/model/model_data.h"

namespace qkv {
namespace {

constexpr Index kWidth = 12;
constexpr Index kHeads = 4;
constexpr double kTolerance = 1e-12;

struct AttentionChangeCase {
  std::string name;  // in the recorded file
  BlockAttentionOptions options;

  friend void PrintTo(const AttentionChangeCase& change_case, std::ostream* stream) {
    *stream << change_case.name;
  }
};

BlockAttentionOptions options_with(const AttentionChange& change) {
  return {.module = {.model_width = kWidth, .heads = kHeads, .biases = ProjectionBiases::all()},
          .change = change};
}

std::vector<AttentionChangeCase> change_cases() {
  std::vector<AttentionChangeCase> cases{
      {"none", options_with({})},
      {"prefix", options_with({.mask = Mask::prefix_causal({2})})},
      {"scale", options_with({.scale = 0.3})},
      {"cosine", options_with({.matching = Matching::Cosine})},
      {"additive", options_with({.matching = Matching::Additive})},
  };
  for (const AttentionBug bug : attention_bugs()) {
    BlockAttentionOptions options = options_with({.bug = bug});
    if (bug == AttentionBug::KvHeadsTiled) options.module.kv_heads = 2;
    if (bug == AttentionBug::WindowOffByOne) options.window = 2;
    cases.push_back({std::string(name_of(bug)), options});
  }
  return cases;
}

void expect_near(std::span<const double> actual, const std::vector<double>& expected,
                 const std::string& name) {
  ASSERT_EQ(actual.size(), expected.size()) << name;
  double largest = 1;
  for (const double x : expected) largest = std::max(largest, std::fabs(x));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], kTolerance * largest) << name << " entry " << i;
  }
}

/// Calls visit(name, tensor) for every parameter.
template <class Parameters, class Visit>
void for_each_parameter(Parameters& parameters, Visit visit) {
  auto& p = parameters.projections;
  visit("q_proj.weight", p.query_weight);
  visit("k_proj.weight", p.key_weight);
  visit("v_proj.weight", p.value_weight);
  visit("o_proj.weight", p.output_weight);
  visit("q_proj.bias", *p.query_bias);
  visit("k_proj.bias", *p.key_bias);
  visit("v_proj.bias", *p.value_bias);
  visit("o_proj.bias", *p.output_bias);
  if (parameters.matching) visit("matching.weight", *parameters.matching);
}

class AttentionChangeTest : public testing::TestWithParam<AttentionChangeCase> {
 protected:
  AttentionChangeTest() : file(cases::golden("changed_attention")) {
    const BlockAttentionOptions& options = GetParam().options;
    parameters.projections = zero_parameters<double>(options.module);
    if (options.change.matching == Matching::Additive) {
      parameters.matching.emplace(Extents<2>{kHeads, kWidth / kHeads});
    }
    for_each_parameter(parameters, [&](const std::string& name, auto& tensor) {
      const std::vector<double> values = recorded("attention." + name);
      ASSERT_EQ(values.size(), tensor.elements().size()) << name;
      std::copy(values.begin(), values.end(), tensor.data());
    });
    input = file.at(GetParam().name + ".x").to<double, 3>("x");
    keep = file.at("keep").to<bool, 2>("keep");
  }

  std::vector<double> recorded(const std::string& name) const {
    return cases::numbers(file, GetParam().name + "." + name);
  }

  TensorFile file;
  BlockAttentionParameters<double> parameters;
  Tensor<double, 3> input;
  std::optional<Tensor<bool, 2>> keep;
};

TEST_P(AttentionChangeTest, AgreesWithPyTorch) {
  const BlockAttentionOptions& options = GetParam().options;
  check_attention(options);
  const auto result = attend(options, parameters, input, keep, ReturnWeights::Yes);
  expect_near(result.module.weights->elements(), recorded("weights"), "weights");
  expect_near(result.module.output.elements(), recorded("output"), "output");

  Tensor<double, 3> output_gradient(result.module.output.shape());
  const std::vector<double> derivatives = recorded("output_gradient");
  std::copy(derivatives.begin(), derivatives.end(), output_gradient.data());
  const auto gradients = attend_backward(options, parameters, input, keep, result, output_gradient);
  expect_near(gradients.input.elements(), recorded("gradient.x"), "input");
  for_each_parameter(gradients.parameters, [&](const std::string& name, const auto& tensor) {
    expect_near(tensor.elements(), recorded("gradient.attention." + name), name);
  });
}

// What no bug touches, plain loops compute as the engine does.
TEST_P(AttentionChangeTest, PlainLoopsAgreeWithTheEngine) {
  BlockAttentionOptions options = GetParam().options;
  if (!runs_on_engine(options.change) || options.change.mask || options.window ||
      options.change.bug) {
    return;
  }
  const ChangedAttention plain{
      .module = options.module, .rules = Mask::causal(), .scale = score_scale(options)};
  const auto expected = attend(options, parameters, input, keep, ReturnWeights::Yes);
  const auto result = attend_changed(plain, parameters, input, keep);
  const auto as_vector = [](const auto& tensor) {
    return std::vector<double>(tensor.elements().begin(), tensor.elements().end());
  };
  expect_near(result.module.weights->elements(), as_vector(*expected.module.weights), "weights");
  expect_near(result.module.output.elements(), as_vector(expected.module.output), "output");
}

INSTANTIATE_TEST_SUITE_P(Changes, AttentionChangeTest, testing::ValuesIn(change_cases()),
                         [](const auto& test) {
                           std::string name = test.param.name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

/// Whether token `changed` has any influence on the logits of token `at`, to the last bit.
bool influences(const DecoderOptions& options, Index changed, Index at) {
  const Decoder<float> decoder(options, 3);
  TokenBatch batch = cases::random_batch(options, 1, 8, 4);
  const Tensor<float, 3> before = decoder.forward(batch).logits;
  batch.tokens(0, changed) = (batch.tokens(0, changed) + 1) % options.vocabulary;
  const Tensor<float, 3> after = decoder.forward(batch).logits;
  return !std::equal(&before(0, at, 0), &before(0, at, 0) + options.vocabulary, &after(0, at, 0));
}

DecoderOptions one_block(std::optional<AttentionBug> bug) {
  DecoderOptions options;
  options.context = 8;
  options.vocabulary = 9;
  options.layers = 1;
  options.changes = {AttentionChange{.bug = bug}};
  return options;
}

TEST(Influence, OfTheFutureIsExactlyZeroWithTheMaskAlone) {
  for (Index later = 4; later < 8; ++later) {
    EXPECT_FALSE(influences(one_block(std::nullopt), later, 3)) << later;
    EXPECT_TRUE(influences(one_block(AttentionBug::CausalDropped), later, 3)) << later;
    EXPECT_EQ(influences(one_block(AttentionBug::CausalOffByOne), later, 3), later == 4) << later;
  }
  EXPECT_TRUE(influences(one_block(AttentionBug::MergedByView), 6, 3));
  // The future is counted by the normalisation, although its weight is taken away.
  EXPECT_TRUE(influences(one_block(AttentionBug::MaskAfterSoftmax), 6, 3));
}

TEST(Influence, WindowOffByOneSeesOneTokenMore) {
  DecoderOptions options = one_block(std::nullopt);
  options.window = 3;
  EXPECT_TRUE(influences(options, 3, 5));
  EXPECT_FALSE(influences(options, 2, 5));
  options.changes = {AttentionChange{.bug = AttentionBug::WindowOffByOne}};
  EXPECT_TRUE(influences(options, 2, 5));
  EXPECT_FALSE(influences(options, 1, 5));
}

TEST(AttentionBugs, HaveNamesAndClassesOfTheirOwn) {
  std::vector<std::string> names;
  std::vector<std::string> classes;
  for (const AttentionBug bug : attention_bugs()) {
    names.emplace_back(name_of(bug));
    classes.emplace_back(class_of(bug));
  }
  EXPECT_THAT(names,
              testing::ElementsAre("causal-dropped", "causal-off-by-one", "window-off-by-one",
                                   "mask-after-softmax", "padding-dropped", "padding-filled",
                                   "padding-on-query-axis", "padding-on-head-axis", "scale-missing",
                                   "scale-twice", "softmax-over-queries", "merged-by-view",
                                   "kv-heads-tiled"));
  EXPECT_THAT(classes, testing::ElementsAre("M7", "M8", "M9", "M3", "M7", "M5", "M2", "M13", "S1",
                                            "S3", "X1", "H2", "G1"));
}

}  // namespace
}  // namespace qkv
