// A block by itself: norms before and after, with and without an MLP, against finite differences; and its edits.
#include "model/block.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>

#include "model/random.h"

namespace qkv {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr Index kWidth = 6;
constexpr Index kTokens = 4;

template <int Rank>
Tensor<double, Rank> drawn(const Extents<Rank>& shape, Random& random, double scale = 1) {
  Tensor<double, Rank> tensor(shape);
  for (double& element : tensor.elements()) element = scale * random.normal();
  return tensor;
}

NormParameters<double> drawn_norm(Random& random) {
  return {drawn<1>({kWidth}, random), drawn<1>({kWidth}, random)};
}

BlockParameters<double> drawn_block(Random& random, bool with_mlp) {
  BlockParameters<double> block;
  block.attention_norm = drawn_norm(random);
  MultiHeadAttentionParameters<double>& p = block.attention.projections;
  p.query_weight = drawn<2>({kWidth, kWidth}, random, 0.5);
  p.key_weight = drawn<2>({kWidth, kWidth}, random, 0.5);
  p.value_weight = drawn<2>({kWidth, kWidth}, random, 0.5);
  p.output_weight = drawn<2>({kWidth, kWidth}, random, 0.5);
  if (!with_mlp) return block;
  MlpParameters<double>& mlp = block.mlp.emplace();
  mlp.norm = drawn_norm(random);
  mlp.in_weight = drawn<2>({5, kWidth}, random, 0.5);
  mlp.in_bias = drawn<1>({5}, random);
  mlp.out_weight = drawn<2>({kWidth, 5}, random, 0.5);
  mlp.out_bias = drawn<1>({kWidth}, random);
  return block;
}

struct BlockCase {
  NormPlacement norms;
  bool mlp;

  friend void PrintTo(const BlockCase& c, std::ostream* stream) {
    *stream << (c.norms == NormPlacement::Before ? "Before" : "After")
            << (c.mlp ? "" : "WithoutMlp");
  }
};

class BlockTest : public testing::TestWithParam<BlockCase> {
 protected:
  BlockTest() {
    options.attention.module = {.model_width = kWidth, .heads = 2};
    options.norms = GetParam().norms;
    parameters = drawn_block(random, GetParam().mlp);
    input = drawn<3>({2, kTokens, kWidth}, random);
  }

  std::pair<Tensor<double, 3>, BlockResult<double>> run(const Tensor<double, 3>& x,
                                                        const BlockEdit<double>& edit = {}) const {
    return run_block<double>(options, parameters, x, std::nullopt, ReturnWeights::No, edit);
  }

  Random random{17};
  BlockOptions options;
  BlockParameters<double> parameters;
  Tensor<double, 3> input;
};

TEST_P(BlockTest, GradientsAreThoseOfFiniteDifferences) {
  const Tensor<double, 3> direction = drawn<3>(input.shape(), random);
  const auto loss = [&] {
    const Tensor<double, 3> output = run(input).first;
    double sum = 0;
    for (std::size_t i = 0; i < output.elements().size(); ++i) {
      sum += output.elements()[i] * direction.elements()[i];
    }
    return sum;
  };
  const auto expect_slopes = [&](std::span<double> at, std::span<const double> gradient,
                                 const std::string& name) {
    constexpr double kStep = 1e-5;
    ASSERT_EQ(at.size(), gradient.size()) << name;
    for (std::size_t i = 0; i < at.size(); ++i) {
      const double before = at[i];
      at[i] = before + kStep;
      const double above = loss();
      at[i] = before - kStep;
      const double slope = (above - loss()) / (2 * kStep);
      at[i] = before;
      ASSERT_NEAR(gradient[i], slope, 1e-7 * std::max(1.0, std::abs(slope))) << name << " " << i;
    }
  };
  const BlockResult<double> result = run(input).second;
  Tensor<double, 3> gradient = direction;
  const BlockGradients<double> gradients =
      run_block_backward<double>(options, parameters, std::nullopt, result, gradient);
  const BlockParameters<double>& dp = gradients.parameters;
  expect_slopes(input.elements(), gradient.elements(), "input");
  expect_slopes(parameters.attention_norm.weight.elements(), dp.attention_norm.weight.elements(),
                "attention norm");
  expect_slopes(parameters.attention.projections.value_weight.elements(),
                dp.attention.projections.value_weight.elements(), "value weight");
  EXPECT_EQ(dp.mlp.has_value(), GetParam().mlp);
  if (!GetParam().mlp) return;
  expect_slopes(parameters.mlp->norm.weight.elements(), dp.mlp->norm.weight.elements(), "mlp norm");
  expect_slopes(parameters.mlp->norm.bias->elements(), dp.mlp->norm.bias->elements(), "mlp norm");
  expect_slopes(parameters.mlp->in_weight.elements(), dp.mlp->in_weight.elements(), "in weight");
}

// Without what attention and MLP add, only the residual stream is left, and its norms where these come after.
TEST_P(BlockTest, WithoutOutputsTheResidualIsLeft) {
  const Tensor<double, 3> output =
      run(input, [](BlockSite site, const TensorView<double, 4>& values) {
        if (site != BlockSite::AttentionOutput && site != BlockSite::MlpOutput) return;
        std::fill_n(values.data(), 2 * kTokens * kWidth, 0.0);
      }).first;
  Tensor<double, 3> expected = input;
  if (options.norms == NormPlacement::After) {
    expected = norm(expected, parameters.attention_norm, options.norm_epsilon);
    if (parameters.mlp) expected = norm(expected, parameters.mlp->norm, options.norm_epsilon);
  }
  EXPECT_THAT(output.elements(), ElementsAreArray(expected.elements()));
}

TEST_P(BlockTest, WithoutResidualsTheOutputsAreLeft) {
  const auto [whole, whole_result] = run(input);
  const auto [output, result] = run(input, [](BlockSite site, const TensorView<double, 4>& values) {
    if (site == BlockSite::AttentionResidual) std::fill_n(values.data(), 2 * kTokens * kWidth, 0.0);
  });
  Tensor<double, 3> middle = whole_result.attention.module.output;
  if (options.norms == NormPlacement::After) {
    middle = norm(middle, parameters.attention_norm, options.norm_epsilon);
  }
  const Tensor<double, 3>& actual = parameters.mlp ? result.middle : output;
  EXPECT_THAT(actual.elements(), ElementsAreArray(middle.elements()));
}

TEST_P(BlockTest, AnEditNeedsTheEngine) {
  options.attention.change.bug = AttentionBug::SoftmaxOverQueries;
  EXPECT_THAT([&] { run(input, [](BlockSite, const TensorView<double, 4>&) {}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("got softmax-over-queries")));
}

INSTANTIATE_TEST_SUITE_P(All, BlockTest,
                         testing::Values(BlockCase{NormPlacement::Before, true},
                                         BlockCase{NormPlacement::Before, false},
                                         BlockCase{NormPlacement::After, true},
                                         BlockCase{NormPlacement::After, false}),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace qkv
