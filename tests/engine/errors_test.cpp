// What the engine refuses, and in which words.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/engine/run.h"

namespace qkv {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

class EngineRefusal : public testing::Test {
 protected:
  void expect_refused(const AttentionOutputs<float>& outputs, const engine::Options& options,
                      const std::string& message) {
    constexpr float kUntouched = 77;
    std::fill(context_.elements().begin(), context_.elements().end(), kUntouched);
    EXPECT_THAT([&] { engine::forward(inputs_, outputs, options); },
                ThrowsMessage<std::invalid_argument>(
                    HasSubstr(fmt::format("engine::forward: {}", message))));
    for (const float x : context_.elements()) ASSERT_EQ(x, kUntouched);
    inputs_ = data_.inputs();
  }
  void expect_refused(const std::string& message, const engine::Options& options = {}) {
    expect_refused({context_.view(), std::nullopt, std::nullopt}, options, message);
  }

  cases::CaseData<float> data_ = cases::make_case<float>({{2, 4, 2, 5, 6, 3, 7}, {}});
  AttentionInputs<float> inputs_ = data_.inputs();
  Tensor<float, 4> context_{{2, 4, 5, 7}};
};

TEST_F(EngineRefusal, OfThreadsAndTargetsThatThereAreNot) {
  const auto with = [](int threads, const std::string& target) {
    engine::Options options;
    options.threads = threads;
    options.target = target;
    return options;
  };
  const std::string known = fmt::format("{}", fmt::join(engine::targets(), ", "));
  expect_refused("threads: expected 1 or more, got 0", with(0, engine::targets()[0]));
  expect_refused("threads: expected 1 or more, got -3", with(-3, engine::targets()[0]));
  expect_refused("target: expected one of " + known + ", got \"AVX9\"", with(1, "AVX9"));
  expect_refused("target: expected one of " + known + ", got \"\"", with(1, ""));
}

TEST_F(EngineRefusal, OfSizesThatDoNotFit) {
  const Tensor<float, 4> three_heads({2, 3, 6, 3});
  inputs_.key = three_heads.view();
  expect_refused("key: expected a number of kv heads that divides H=4, got 3");
  inputs_.value = inputs_.value.slice(2, 0, 5);
  expect_refused("value: expected shape [2, 2, 6, 7], got [2, 2, 5, 7]");
  inputs_.key = inputs_.key.slice(3, 0, 2);
  expect_refused("key: expected shape [2, 2, 6, 3], got [2, 2, 6, 2]");
  inputs_.query = {nullptr, inputs_.query.shape(), inputs_.query.strides()};
  expect_refused("query: expected data for shape [2, 4, 5, 3], got a null pointer");
  inputs_.mask = Mask::causal();
  expect_refused("mask: expected a corner");
  inputs_.scale = std::numeric_limits<double>::infinity();
  expect_refused("scale: expected a finite number, got inf");
  const Tensor<float, 4> bias({2, 4, 6, 5});
  inputs_.bias = bias.view();
  expect_refused(
      "bias: expected a shape that broadcasts to [B,H,T,S]=[2, 4, 5, 6], got [2, 4, 6, 5]");
}

TEST_F(EngineRefusal, OfOutputsThatOverlapOrDoNotFit) {
  expect_refused({TensorView<float, 4>(context_.data(), {2, 4, 5, 7}, {140, 0, 7, 1}), {}, {}}, {},
                 "context: expected an output whose elements do not overlap");
  expect_refused({TensorView<float, 4>(data_.value.data(), {2, 4, 5, 7}, {140, 35, 7, 1}), {}, {}},
                 {}, "context: expected memory apart from the input value, got overlapping views");
  expect_refused({context_.view(), TensorView<float, 4>(context_.data(), {2, 4, 5, 6}), {}}, {},
                 "weights: expected memory apart from the output context, got overlapping views");
  expect_refused({context_.view(), {}, TensorView<float, 3>(context_.data(), {2, 4, 5})}, {},
                 "log_sum_exp: expected memory apart from the output context");
  expect_refused({context_.view().slice(2, 0, 4), {}, {}}, {},
                 "context: expected shape [2, 4, 5, 7], got [2, 4, 4, 7]");
  Tensor<float, 4> weights({2, 4, 6, 5});
  expect_refused({context_.view(), weights.view(), {}}, {},
                 "weights: expected shape [2, 4, 5, 6], got [2, 4, 6, 5]");
}

}  // namespace
}  // namespace qkv
