// Arguments of the module that do not fit: the message names operation, argument, expected and actual.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

#include "tests/cases/attention_cases.h"
#include "tests/module/module_data.h"

namespace qkv {
namespace {

using cases::random_module;
using testing::StrEq;
using testing::ThrowsMessage;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

void expect_options_error(const MultiHeadAttentionOptions& options, const std::string& message) {
  EXPECT_THAT([&] { zero_parameters<double>(options); },
              ThrowsMessage<std::invalid_argument>(StrEq(message)));
  EXPECT_THROW(MultiHeadAttention<double>(options, {}), std::invalid_argument);
}

TEST(ModuleErrors, OptionsThatDoNotFitTogether) {
  const MultiHeadAttentionOptions fits{.model_width = 16, .heads = 4};
  const auto with = [&](auto change) {
    MultiHeadAttentionOptions options = fits;
    change(options);
    return options;
  };
  using Options = MultiHeadAttentionOptions;
  expect_options_error(with([](Options& o) { o.heads = 3; }),
                       "MultiHeadAttention: heads: expected a divisor of model_width 16, got 3");
  expect_options_error(with([](Options& o) { o.heads = 0; }),
                       "MultiHeadAttention: heads: expected a positive number, got 0");
  expect_options_error(with([](Options& o) { o.model_width = -1; }),
                       "MultiHeadAttention: model_width: expected a positive number, got -1");
  expect_options_error(
      with([](Options& o) { o.kv_heads = 3; }),
      "MultiHeadAttention: kv_heads: expected a positive divisor of heads 4, got 3");
  expect_options_error(with([](Options& o) { o.head_width = 0; }),
                       "MultiHeadAttention: head_width: expected a positive number, got 0");
  expect_options_error(with([](Options& o) { o.value_head_width = -2; }),
                       "MultiHeadAttention: value_head_width: expected a positive number, got -2");
  expect_options_error(with([](Options& o) { o.key_width = 0; }),
                       "MultiHeadAttention: key_width: expected a positive number, got 0");
  expect_options_error(with([](Options& o) { o.value_width = 0; }),
                       "MultiHeadAttention: value_width: expected a positive number, got 0");
  expect_options_error(with([](Options& o) { o.rotary = RotaryOptions{.width = 3}; }),
                       "MultiHeadAttention: rotary.width: expected an even number of at most the "
                       "head width 4, got 3");
  expect_options_error(with([](Options& o) {
                         o.head_width = 5;
                         o.rotary = RotaryOptions{};
                       }),
                       "MultiHeadAttention: rotary.width: expected an even number of at most the "
                       "head width 5, got 5");
  expect_options_error(
      with([](Options& o) { o.rotary = RotaryOptions{.base = -1}; }),
      "MultiHeadAttention: rotary.base: expected a positive finite number, got -1");
  expect_options_error(with([](Options& o) { o.scale = kNan; }),
                       "MultiHeadAttention: scale: expected a finite number, got nan");
  expect_options_error(with([](Options& o) { o.softcap = 0; }),
                       "MultiHeadAttention: softcap: expected a positive finite number, got 0");
  expect_options_error(
      with([](Options& o) { o.qk_norm = QkNormOptions{.epsilon = -1}; }),
      "MultiHeadAttention: qk_norm.epsilon: expected a finite number of 0 or more, got -1");
  expect_options_error(with([](Options& o) { o.head_width = Index{1} << 62; }),
                       "MultiHeadAttention: head_width: expected a number of heads times a head "
                       "width below 2^63, got 4 x 4611686018427387904");
}

TEST(ModuleErrors, ParametersThatDoNotFitTheOptions) {
  const MultiHeadAttentionOptions options{.model_width = 16, .heads = 4};
  const auto expect_error = [&](auto change, const std::string& message) {
    auto parameters = zero_parameters<double>(options);
    change(parameters);
    EXPECT_THAT([&] { MultiHeadAttention<double>(options, parameters); },
                ThrowsMessage<std::invalid_argument>(StrEq("MultiHeadAttention: " + message)));
    // The same through a module whose parameters are replaced.
    MultiHeadAttention<double> module(options, zero_parameters<double>(options));
    module.parameters() = parameters;
    const Tensor<double, 3> x({1, 2, 16});
    EXPECT_THAT(
        [&] { module.forward({.query = x.view()}); },
        ThrowsMessage<std::invalid_argument>(StrEq("MultiHeadAttention::forward: " + message)));
  };
  using Parameters = MultiHeadAttentionParameters<double>;
  expect_error(
      [](Parameters& p) {
        p.key_weight = Tensor<double, 2>({16, 15});
      },
      "key_weight: expected shape [16, 16], got [16, 15]");
  expect_error([](Parameters& p) { p.query_bias = Tensor<double, 1>({16}); },
               "query_bias: expected none by the options, got shape [16]");
  MultiHeadAttentionOptions biased = options;
  biased.biases.output = true;
  EXPECT_THAT(
      [&] { MultiHeadAttention<double>(biased, zero_parameters<double>(options)); },
      ThrowsMessage<std::invalid_argument>(
          StrEq("MultiHeadAttention: output_bias: expected shape [16] by the options, got none")));
}

struct ModuleInputErrors : testing::Test {
  MultiHeadAttention<double> module =
      random_module<double>({.model_width = 8, .heads = 2, .key_width = 6, .value_width = 5}, 1);
  Tensor<double, 3> query{{2, 3, 8}};
  Tensor<double, 3> key{{2, 4, 6}};
  Tensor<double, 3> value{{2, 4, 5}};

  MultiHeadAttentionInputs<double> inputs() const {
    return {.query = query.view(), .key = key.view(), .value = value.view()};
  }

  void expect_error(const MultiHeadAttentionInputs<double>& wrong, const std::string& message) {
    EXPECT_THAT(
        [&] { module.forward(wrong); },
        ThrowsMessage<std::invalid_argument>(StrEq("MultiHeadAttention::forward: " + message)));
    const auto result = module.forward(inputs());
    EXPECT_THAT(
        [&] { module.backward(wrong, result, query.view()); },
        ThrowsMessage<std::invalid_argument>(StrEq("MultiHeadAttention::backward: " + message)));
  }
};

TEST_F(ModuleInputErrors, Shapes) {
  auto wrong = inputs();
  const Tensor<double, 3> narrow({2, 3, 7});
  wrong.query = narrow.view();
  expect_error(wrong, "query: expected shape [2, 3, 8], got [2, 3, 7]");
  wrong = inputs();
  const Tensor<double, 3> other_batch({3, 4, 6});
  wrong.key = other_batch.view();
  expect_error(wrong, "key: expected shape [2, 4, 6], got [3, 4, 6]");
  wrong = inputs();
  const Tensor<double, 3> shorter({2, 3, 5});
  wrong.value = shorter.view();
  expect_error(wrong, "value: expected shape [2, 4, 5], got [2, 3, 5]");
  wrong = inputs();
  wrong.key = std::nullopt;
  expect_error(wrong, "key (the query input): expected shape [2, 3, 6], got [2, 3, 8]");
  wrong = inputs();
  wrong.value = std::nullopt;
  expect_error(wrong, "value (the key input): expected shape [2, 4, 5], got [2, 4, 6]");
  wrong = inputs();
  wrong.query = TensorView<const double, 3>(nullptr, {2, 3, 8});
  expect_error(wrong, "query: expected data for shape [2, 3, 8], got a null pointer");
}

TEST_F(ModuleInputErrors, MasksAndModifiers) {
  auto wrong = inputs();
  wrong.mask = Mask::causal();
  EXPECT_THROW(module.forward(wrong), std::invalid_argument);  // T != S and no corner
  wrong = inputs();
  const Tensor<double, 4> bias({1, 2, 3, 5});
  wrong.bias = bias.view();
  expect_error(
      wrong, "bias: expected a shape that broadcasts to [B,H,T,S]=[2, 2, 3, 4], got [1, 2, 3, 5]");
  wrong = inputs();
  wrong.alibi = Alibi{{0.5}, Corner::top_left()};
  expect_error(wrong, "alibi: expected one slope a query head, H=2, got 1");
}

TEST_F(ModuleInputErrors, Positions) {
  auto wrong = inputs();
  const Tensor<Index, 2> positions({1, 3});
  wrong.query_positions = positions.view();
  expect_error(wrong, "query_positions: expected none without rotary positions, got shape [1, 3]");
  module = random_module<double>(
      {.model_width = 8, .heads = 2, .key_width = 6, .value_width = 5, .rotary = RotaryOptions{}},
      1);
  wrong = inputs();
  wrong.key_positions = positions.view();
  expect_error(wrong, "key_positions: expected shape [1, 4], got [1, 3]");
  const Tensor<Index, 2> other_batch({3, 3});
  wrong = inputs();
  wrong.query_positions = other_batch.view();
  expect_error(wrong, "query_positions: expected shape [2, 3], got [3, 3]");
}

TEST_F(ModuleInputErrors, GradientsAndResultsOfAnotherCall) {
  const auto result = module.forward(inputs());
  const auto expect_backward_error = [&](const MultiHeadAttentionResult<double>& given,
                                         const TensorView<const double, 3>& output_gradient,
                                         const std::string& message) {
    EXPECT_THAT(
        [&] { module.backward(inputs(), given, output_gradient); },
        ThrowsMessage<std::invalid_argument>(StrEq("MultiHeadAttention::backward: " + message)));
  };
  expect_backward_error(result, value.view(),
                        "output_gradient: expected shape [2, 3, 8], got [2, 4, 5]");
  auto other = result;
  other.key_heads = Tensor<double, 4>({2, 2, 3, 4});
  expect_backward_error(other, query.view(),
                        "result.key_heads: expected shape [2, 2, 4, 4], got [2, 2, 3, 4]");
  const Tensor<double, 4> weights({2, 2, 3, 3});
  EXPECT_THAT([&] { module.backward(inputs(), result, query.view(), weights.view()); },
              ThrowsMessage<std::invalid_argument>(
                  StrEq("MultiHeadAttention::backward: weights_gradient: expected shape [2, 2, 3, "
                        "4], got [2, 2, 3, 3]")));
}

}  // namespace
}  // namespace qkv
