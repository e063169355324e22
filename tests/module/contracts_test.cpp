// What the module promises whatever the numbers: garbage that nobody sees leaves no trace, strides do not
// matter, empty inputs give empty results, float32 rounds what float64 computes.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "tests/cases/attention_cases.h"
#include "tests/module/module_data.h"

namespace qkv {
namespace {

using cases::difference;
using cases::flattened;
using cases::gradients_of;
using cases::ModuleData;
using cases::random_module;
using cases::random_tensor;
using cases::same_bits;

constexpr std::array kGarbage{std::numeric_limits<double>::quiet_NaN(),
                              std::numeric_limits<double>::infinity(),
                              -std::numeric_limits<double>::infinity()};

MultiHeadAttentionOptions rich_options() {
  return {.model_width = 8,
          .heads = 4,
          .kv_heads = 2,
          .head_width = 6,
          .value_head_width = 3,
          .biases = ProjectionBiases::all(),
          .qk_norm = QkNormOptions{},
          .rotary = RotaryOptions{}};
}

template <class T>
void fill_token(Tensor<T, 3>& tokens, Index b, Index t, double value) {
  for (Index d = 0; d < tokens.shape(2); ++d) tokens(b, t, d) = static_cast<T>(value);
}

template <int Rank>
Tensor<double, Rank> widened(const Tensor<float, Rank>& tensor) {
  Tensor<double, Rank> result(tensor.shape());
  std::copy(tensor.elements().begin(), tensor.elements().end(), result.data());
  return result;
}

template <class T>
std::vector<T> rows_but(const Tensor<T, 3>& tokens, Index skipped_b, Index skipped_t) {
  std::vector<T> result;
  for (Index b = 0; b < tokens.shape(0); ++b) {
    for (Index t = 0; t < tokens.shape(1); ++t) {
      if (b == skipped_b && t == skipped_t) continue;
      for (Index d = 0; d < tokens.shape(2); ++d) result.push_back(tokens(b, t, d));
    }
  }
  return result;
}

template <class T>
void expect_same_gradients(const MultiHeadAttentionGradients<T>& actual,
                           const MultiHeadAttentionGradients<T>& expected) {
  const auto a = flattened(actual);
  const auto b = flattened(expected);
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(same_bits(a[i].second, b[i].second)) << a[i].first;
    for (const T entry : a[i].second) ASSERT_TRUE(std::isfinite(entry)) << a[i].first;
  }
}

template <class T>
class ModuleContracts : public testing::Test {};
using Types = testing::Types<double, float>;
TYPED_TEST_SUITE(ModuleContracts, Types);

TYPED_TEST(ModuleContracts, GarbageInAPaddedKeyTokenLeavesNoTrace) {
  using T = TypeParam;
  MultiHeadAttentionOptions options = rich_options();
  options.key_width = 7;
  options.value_width = 5;
  const auto module = random_module<T>(options, 1);
  ModuleData<T> data;
  data.query = random_tensor<T, 3>({2, 3, 8}, 11);
  data.key = random_tensor<T, 3>({2, 4, 7}, 12);
  data.value = random_tensor<T, 3>({2, 4, 5}, 13);
  data.mask = Mask::key_lengths({4, 3});  // key 3 of sample 1 is padding
  const auto output_gradient = random_tensor<T, 3>({2, 3, 8}, 14);

  const auto clean = module.forward(data.inputs(), ReturnWeights::Yes);
  const auto clean_gradients = gradients_of(module, data.inputs(), output_gradient);
  for (const double garbage : kGarbage) {
    fill_token(*data.key, 1, 3, garbage);
    fill_token(*data.value, 1, 3, garbage);
    const auto result = module.forward(data.inputs(), ReturnWeights::Yes);
    EXPECT_TRUE(same_bits(result.output, clean.output));
    EXPECT_TRUE(same_bits(*result.weights, *clean.weights));
    EXPECT_TRUE(same_bits(result.log_sum_exp, clean.log_sum_exp));
    expect_same_gradients(gradients_of(module, data.inputs(), output_gradient), clean_gradients);
  }
}

TYPED_TEST(ModuleContracts, GarbageInAPaddedTokenOfSelfAttentionStaysInItsOwnOutputRow) {
  using T = TypeParam;
  const auto module = random_module<T>(rich_options(), 2);
  ModuleData<T> data;
  data.query = random_tensor<T, 3>({2, 5, 8}, 21);
  data.mask =
      Mask::key_lengths({5, 4});  // token 4 of sample 1 is padding, and a query all the same
  auto output_gradient = random_tensor<T, 3>({2, 5, 8}, 22);
  fill_token(output_gradient, 1, 4, 0);

  const auto clean = module.forward(data.inputs());
  const auto clean_gradients = gradients_of(module, data.inputs(), output_gradient);
  for (const double garbage : kGarbage) {
    fill_token(data.query, 1, 4, garbage);
    const auto result = module.forward(data.inputs());
    EXPECT_TRUE(same_bits(rows_but(result.output, 1, 4), rows_but(clean.output, 1, 4)));
    EXPECT_TRUE(std::isnan(result.output(1, 4, 0)));
    expect_same_gradients(gradients_of(module, data.inputs(), output_gradient), clean_gradients);
  }
}

TYPED_TEST(ModuleContracts, APaddedTokenWhoseQuerySeesNothingGivesTheOutputBias) {
  using T = TypeParam;
  const auto module = random_module<T>(rich_options(), 3);
  ModuleData<T> data;
  data.query = random_tensor<T, 3>({1, 4, 8}, 31);
  Tensor<bool, 4> keep({1, 1, 4, 4});  // token 2 sees nothing and is seen by nobody
  for (Index t = 0; t < 4; ++t) {
    for (Index s = 0; s < 4; ++s) keep(0, 0, t, s) = t != 2 && s != 2;
  }
  data.mask = Mask::boolean(keep.view(), Polarity::Keep);
  fill_token(data.query, 0, 2, kGarbage[0]);
  const auto result = module.forward(data.inputs());
  for (Index d = 0; d < 8; ++d) {
    EXPECT_EQ(result.output(0, 2, d), (*module.parameters().output_bias)(d));
  }
  for (Index h = 0; h < 4; ++h) {
    EXPECT_EQ(result.log_sum_exp(0, h, 2), -std::numeric_limits<T>::infinity());
  }

  // Its own output gradient reaches the output bias and nothing else, even where it is NaN.
  auto output_gradient = random_tensor<T, 3>({1, 4, 8}, 32);
  const auto clean = flattened(gradients_of(module, data.inputs(), output_gradient));
  fill_token(output_gradient, 0, 2, kGarbage[0]);
  const auto actual = flattened(gradients_of(module, data.inputs(), output_gradient));
  for (std::size_t i = 0; i < clean.size(); ++i) {
    if (clean[i].first == "output_bias") continue;
    EXPECT_TRUE(same_bits(actual[i].second, clean[i].second)) << clean[i].first;
    for (const T entry : actual[i].second) ASSERT_TRUE(std::isfinite(entry)) << clean[i].first;
  }
}

TYPED_TEST(ModuleContracts, AVisibleNanReachesExactlyTheRowsThatSeeIt) {
  using T = TypeParam;
  const auto module = random_module<T>(rich_options(), 4);
  ModuleData<T> data;
  data.query = random_tensor<T, 3>({2, 4, 8}, 41);
  data.mask = Mask::causal();
  const auto clean = module.forward(data.inputs());
  fill_token(data.query, 0, 2, kGarbage[0]);
  const auto result = module.forward(data.inputs());
  for (Index b = 0; b < 2; ++b) {
    for (Index t = 0; t < 4; ++t) {
      for (Index d = 0; d < 8; ++d) {
        if (b == 0 && t >= 2) {
          EXPECT_TRUE(std::isnan(result.output(b, t, d))) << b << ' ' << t;
        } else {
          EXPECT_EQ(result.output(b, t, d), clean.output(b, t, d)) << b << ' ' << t;
        }
      }
    }
  }
}

TYPED_TEST(ModuleContracts, StridesOfInputsAndGradientsDoNotChangeABit) {
  using T = TypeParam;
  const auto module = random_module<T>(rich_options(), 5);
  ModuleData<T> data;
  data.query = random_tensor<T, 3>({2, 3, 8}, 51);
  data.key = random_tensor<T, 3>({2, 5, 8}, 52);
  const auto output_gradient = random_tensor<T, 3>({2, 3, 8}, 53);
  const auto expected = module.forward(data.inputs());
  const auto expected_gradients = module.backward(data.inputs(), expected, output_gradient.view());

  // Time-major memory for the query and its gradient, width-major for the key.
  const auto time_major = contiguous_copy(std::as_const(data.query).view().transposed(0, 1));
  const auto width_major = contiguous_copy(std::as_const(*data.key).view().transposed(1, 2));
  const auto gradient = contiguous_copy(output_gradient.view().transposed(0, 1));
  MultiHeadAttentionInputs<T> inputs = data.inputs();
  inputs.query = time_major.view().transposed(0, 1);
  inputs.key = width_major.view().transposed(1, 2);
  const auto result = module.forward(inputs);
  EXPECT_TRUE(same_bits(result.output, expected.output));
  expect_same_gradients(module.backward(inputs, result, gradient.view().transposed(0, 1)),
                        expected_gradients);
}

TYPED_TEST(ModuleContracts, EmptyBatchesAndSequencesGiveEmptyResults) {
  using T = TypeParam;
  const auto module = random_module<T>(rich_options(), 6);
  for (const Extents<2> extents : {Extents<2>{0, 3}, {2, 0}}) {
    ModuleData<T> data;
    data.query = Tensor<T, 3>({extents[0], extents[1], 8});
    data.mask = Mask::causal();
    const auto result = module.forward(data.inputs(), ReturnWeights::Yes);
    EXPECT_EQ(result.output.shape(), (Extents<3>{extents[0], extents[1], 8}));
    EXPECT_EQ(result.weights->shape(), (Extents<4>{extents[0], 4, extents[1], extents[1]}));
    const auto gradients = flattened(gradients_of(module, data.inputs(), data.query));
    for (const auto& [name, entries] : gradients) {
      for (const T entry : entries) EXPECT_EQ(entry, 0) << name;
    }
  }
}

TYPED_TEST(ModuleContracts, WithoutKeysEveryQuerySeesNothing) {
  using T = TypeParam;
  const auto module = random_module<T>(rich_options(), 7);
  ModuleData<T> data;
  data.query = random_tensor<T, 3>({2, 3, 8}, 71);
  data.key = Tensor<T, 3>({2, 0, 8});
  const auto result = module.forward(data.inputs());
  for (Index t = 0; t < 3; ++t) {
    for (Index d = 0; d < 8; ++d) {
      EXPECT_EQ(result.output(1, t, d), (*module.parameters().output_bias)(d));
    }
  }
  const auto gradients = gradients_of(module, data.inputs(), data.query);
  EXPECT_EQ(gradients.key->shape(), (Extents<3>{2, 0, 8}));
  for (const T entry : gradients.query.elements()) EXPECT_EQ(entry, 0);
  for (const T entry : gradients.parameters.output_weight.elements()) EXPECT_EQ(entry, 0);
}

TEST(ModuleIdentities, ExplicitInputsEqualSelfAttentionAndTheirGradientsAddUp) {
  const auto module = random_module<double>(rich_options(), 8);
  ModuleData<double> self;
  self.query = random_tensor<double, 3>({2, 4, 8}, 81);
  self.mask = Mask::causal();
  ModuleData<double> apart = self;
  apart.key = self.query;
  apart.value = self.query;
  const auto output_gradient = random_tensor<double, 3>({2, 4, 8}, 82);
  EXPECT_TRUE(
      same_bits(module.forward(self.inputs()).output, module.forward(apart.inputs()).output));
  const auto summed = gradients_of(module, self.inputs(), output_gradient);
  const auto parts = gradients_of(module, apart.inputs(), output_gradient);
  Tensor<double, 3> sum = parts.query;
  for (std::size_t i = 0; i < sum.elements().size(); ++i) {
    sum.elements()[i] += parts.key->elements()[i] + parts.value->elements()[i];
  }
  EXPECT_LE(difference(summed.query, sum), 1e-14);
}

TEST(ModuleIdentities, AGroupOfQueryHeadsReadsOneKeyHead) {
  // Grouped heads equal ungrouped ones whose key and value weights are repeated within each group.
  MultiHeadAttentionOptions grouped{.model_width = 8, .heads = 4, .kv_heads = 2};
  const auto module = random_module<double>(grouped, 9);
  auto parameters = module.parameters();
  const auto repeated = [](const Tensor<double, 2>& weight) {
    Tensor<double, 2> result({8, weight.shape(1)});
    for (Index row = 0; row < 8; ++row) {
      const Index head = row / 2;
      for (Index i = 0; i < weight.shape(1); ++i) {
        result(row, i) = weight(head / 2 * 2 + row % 2, i);
      }
    }
    return result;
  };
  parameters.key_weight = repeated(module.parameters().key_weight);
  parameters.value_weight = repeated(module.parameters().value_weight);
  const MultiHeadAttention<double> ungrouped({.model_width = 8, .heads = 4}, parameters);
  const auto x = random_tensor<double, 3>({2, 5, 8}, 91);
  EXPECT_LE(difference(module.forward({.query = x.view()}).output,
                       ungrouped.forward({.query = x.view()}).output),
            1e-14);
}

TEST(ModuleIdentities, Float32IsFloat64Rounded) {
  const auto wide = random_module<double>(rich_options(), 10);
  auto parameters = zero_parameters<float>(rich_options());
  std::vector<std::span<const double>> sources;
  cases::for_each_parameter(wide.parameters(),
                            [&](const std::string&, auto entries) { sources.push_back(entries); });
  std::size_t next = 0;
  cases::for_each_parameter(parameters, [&](const std::string&, std::span<float> entries) {
    std::copy(sources[next].begin(), sources[next].end(), entries.begin());
    ++next;
  });
  const MultiHeadAttention<float> narrow(rich_options(), parameters);

  const auto x = random_tensor<float, 3>({2, 4, 8}, 100);
  const auto dy = random_tensor<float, 3>({2, 4, 8}, 101);
  const auto dweights = random_tensor<float, 4>({2, 4, 4, 4}, 102);
  const auto wide_x = widened(x);
  const auto wide_dy = widened(dy);
  const auto wide_dweights = widened(dweights);
  const auto narrow_result = narrow.forward({.query = x.view()}, ReturnWeights::Yes);
  const auto wide_result = wide.forward({.query = wide_x.view()}, ReturnWeights::Yes);
  EXPECT_LE(difference(narrow_result.output, wide_result.output), 1e-6);
  EXPECT_LE(difference(*narrow_result.weights, *wide_result.weights), 1e-6);
  EXPECT_LE(difference(narrow_result.log_sum_exp, wide_result.log_sum_exp), 1e-6);
  const auto narrow_gradients =
      flattened(narrow.backward({.query = x.view()}, narrow_result, dy.view(), dweights.view()));
  const auto wide_gradients = flattened(
      wide.backward({.query = wide_x.view()}, wide_result, wide_dy.view(), wide_dweights.view()));
  for (std::size_t i = 0; i < wide_gradients.size(); ++i) {
    EXPECT_LE(difference(narrow_gradients[i].second, wide_gradients[i].second), 3e-6)
        << wide_gradients[i].first;
  }
}

}  // namespace
}  // namespace qkv
