// The verdict on dumps that the engine has answered, as they are and spoilt.
#include "check/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "check/where.h"
#include "tests/check/random_dump.h"

namespace qkv {
namespace {

using ::testing::Contains;
using ::testing::Field;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

const TensorVerdict& of(const Verdict& verdict, const std::string& name) {
  for (const TensorVerdict& one : verdict.tensors) {
    if (one.name == name) return one;
  }
  throw std::invalid_argument("no tensor " + name);
}

template <class T>
class VerdictOf : public ::testing::Test {};
using Storages = ::testing::Types<double, float, Float16, BFloat16>;
TYPED_TEST_SUITE(VerdictOf, Storages);

TYPED_TEST(VerdictOf, TheEngineMatchesAtEveryMagnitudeOfScores) {
  for (const double gain : {1e-3, 1.0, 5.0, 20.0}) {
    for (unsigned seed = 1; seed <= 5; ++seed) {
      RandomDumpOptions options;
      options.gain = gain;
      options.seed = 10 * seed;
      const Verdict verdict = judge(random_dump<TypeParam>(options), dtype_of<TypeParam>);
      for (const TensorVerdict& one : verdict.tensors) {
        EXPECT_TRUE(one.matches) << one.name << " gain " << gain << " seed " << seed << " largest "
                                 << one.largest_units << " rms " << one.rms_units;
      }
    }
  }
}

TYPED_TEST(VerdictOf, OneKeyTooManyDiffers) {
  Dump dump = random_dump<TypeParam>();
  dump.rules.lengths = {18, 16};
  const Verdict verdict = judge(dump, dtype_of<TypeParam>);
  EXPECT_FALSE(verdict.matches);
  EXPECT_FALSE(of(verdict, "out").matches);
}

TYPED_TEST(VerdictOf, AScaleThatIsAFewPercentOffDiffers) {
  RandomDumpOptions options;
  options.gain = 2;
  Dump dump = random_dump<TypeParam>(options);
  dump.scale *= 1.04;
  EXPECT_FALSE(judge(dump, dtype_of<TypeParam>).matches);
}

TEST(Verdict, AnErrorInsideOfEveryBoundShowsInTheRootMeanSquare) {
  RandomDumpOptions options;
  options.shape = {2, 4, 4, 64, 64, 16, 16};
  Dump dump = random_dump<BFloat16>(options);
  const Verdict right = judge(dump, DType::BFloat16);
  ASSERT_TRUE(right.matches);
  // 2.5 standard deviations, in head 1 alone.
  for (Index b = 0; b < 2; ++b) {
    for (Index t = 0; t < 64; ++t) {
      for (Index d = 0; d < 16; ++d) {
        const double unit = std::sqrt(right.expected.context.variance(b, 1, t, d));
        (*dump.context)(b, 1, t, d) = right.expected.context.value(b, 1, t, d) + 2.5 * unit;
      }
    }
  }
  const Verdict verdict = judge(dump, DType::BFloat16);
  const TensorVerdict& out = of(verdict, "out");
  EXPECT_FALSE(verdict.matches);
  EXPECT_EQ(out.beyond, 0);
  EXPECT_LT(out.largest_units, out.largest_allowed);
  EXPECT_THAT(out.wrong_parts,
              Contains(AllOf(Field(&WrongPart::axis, "head"), Field(&WrongPart::begin, 1))));
}

TEST(Verdict, ANumberThatIsNotOneDiffers) {
  for (const double wrong : {kNaN, std::numeric_limits<double>::infinity()}) {
    Dump dump = random_dump<float>();
    (*dump.context)(1, 2, 3, 4) = wrong;
    const Verdict verdict = judge(dump, DType::Float32);
    const TensorVerdict& out = of(verdict, "out");
    EXPECT_FALSE(verdict.matches);
    EXPECT_EQ(out.not_finite, 1);
    EXPECT_EQ(out.beyond, 1);
    EXPECT_EQ(out.largest_at, (Extents<4>{1, 2, 3, 4}));
  }
}

TEST(Verdict, WhatNobodyReadsMayBeAnything) {
  Dump dump = random_dump<float>();
  dump.read_rows = Tensor<bool, 2>({2, 13});
  for (bool& read : dump.read_rows->elements()) read = true;
  (*dump.read_rows)(1, 5) = false;
  for (Index h = 0; h < 4; ++h) {
    (*dump.context)(1, h, 5, 0) = kNaN;
    (*dump.weights)(1, h, 5, 0) = 7;
    (*dump.log_sum_exp)(1, h, 5) = 1e9;
  }
  EXPECT_TRUE(judge(dump, DType::Float32).matches);
  (*dump.context)(1, 0, 6, 0) = kNaN;
  EXPECT_FALSE(judge(dump, DType::Float32).matches);
}

TEST(Verdict, ARowWithoutAKeyGivesWhatThePolicySays) {
  Dump dump = random_dump<float>();
  dump.rules.lengths = {19, 0};  // sample 1 sees nothing
  answer<float>(dump);
  const auto mean_of_values = [&](Dump& spoilt) {
    for (Index h = 0; h < 4; ++h) {
      for (Index t = 0; t < 13; ++t) {
        for (Index d = 0; d < 8; ++d) {
          double mean = 0;
          for (Index s = 0; s < 19; ++s) mean += dump.value(1, h / 2, s, d) / 19;
          (*spoilt.context)(1, h, t, d) = static_cast<float>(mean);
        }
        for (Index s = 0; s < 19; ++s) (*spoilt.weights)(1, h, t, s) = 1.F / 19;
      }
    }
  };
  Dump with_mean = dump;
  mean_of_values(with_mean);
  Dump with_nan = dump;
  for (Index h = 0; h < 4; ++h) {
    for (Index t = 0; t < 13; ++t) {
      for (Index d = 0; d < 8; ++d) (*with_nan.context)(1, h, t, d) = kNaN;
      for (Index s = 0; s < 19; ++s) (*with_nan.weights)(1, h, t, s) = kNaN;
    }
  }
  const auto matches = [](Dump one, EmptyRow policy) {
    one.empty_row = policy;
    return judge(one, DType::Float32).matches;
  };
  EXPECT_TRUE(matches(dump, EmptyRow::Zero));
  EXPECT_TRUE(matches(with_mean, EmptyRow::Mean));
  EXPECT_TRUE(matches(with_nan, EmptyRow::NaN));
  for (const Dump* one : {&dump, &with_mean, &with_nan}) EXPECT_TRUE(matches(*one, EmptyRow::Any));
  EXPECT_FALSE(matches(dump, EmptyRow::Mean));
  EXPECT_FALSE(matches(dump, EmptyRow::NaN));
  EXPECT_FALSE(matches(with_mean, EmptyRow::Zero));
  EXPECT_FALSE(matches(with_nan, EmptyRow::Zero));
}

TEST(Verdict, ASinkTakesAllOfARowWithoutAKey) {
  Dump dump = random_dump<float>();
  dump.rules.lengths = {19, 0};
  answer<float>(dump);  // sample 1 gives 0
  dump.sink = Tensor<double, 1>({4});
  for (double& sink : dump.sink->elements()) sink = -100;  // next to nothing in the other rows
  dump.log_sum_exp.reset();
  for (const EmptyRow policy : {EmptyRow::Zero, EmptyRow::Mean, EmptyRow::NaN, EmptyRow::Any}) {
    dump.empty_row = policy;
    EXPECT_TRUE(judge(dump, DType::Float32).matches);
  }
}

TEST(Verdict, LogSumExpHasABase) {
  Dump dump = random_dump<double>();
  dump.log_sum_exp_base2 = true;
  EXPECT_FALSE(of(judge(dump, DType::Float64), "lse").matches);
  for (double& lse : dump.log_sum_exp->elements()) lse /= std::log(2.0);
  EXPECT_TRUE(of(judge(dump, DType::Float64), "lse").matches);
}

TEST(Verdict, ASecondRunIsHeldToTheSame) {
  Dump dump = random_dump<BFloat16>();
  dump.second_context = dump.context;
  EXPECT_TRUE(judge(dump, DType::BFloat16).matches);
  (*dump.second_context)(0, 1, 12, 3) += 1;
  const Verdict verdict = judge(dump, DType::BFloat16);
  EXPECT_TRUE(of(verdict, "out").matches);
  EXPECT_FALSE(of(verdict, "out2").matches);
}

TEST(Verdict, AResultBeyondFloat16IsInfinite) {
  Dump dump = random_dump<Float16>();
  for (double& value : dump.value.elements()) value = 65504;
  answer<Float16>(dump);
  for (double& result : dump.context->elements()) {
    result = std::numeric_limits<double>::infinity();
  }
  EXPECT_TRUE(of(judge(dump, DType::Float16), "out").matches);
  dump.ran_in = DType::Float32;
  EXPECT_FALSE(of(judge(dump, DType::Float32), "out").matches);
}

TEST(Verdict, AFileThatKeepsLessThanTheCodeRanIn) {
  Dump dump = random_dump<float>();
  dump.context = rounded_to<BFloat16>(*dump.context);
  dump.weights.reset();
  dump.log_sum_exp.reset();
  EXPECT_TRUE(judge(dump, DType::BFloat16).matches);
  EXPECT_FALSE(judge(dump, DType::Float32).matches);
}

/// Gradients by the engine in T.
template <class T>
void add_gradients(Dump& dump) {
  const auto query = stored_as<T>(std::as_const(dump.query).view());
  const auto key = stored_as<T>(std::as_const(dump.key).view());
  const auto value = stored_as<T>(std::as_const(dump.value).view());
  AttentionInputs<T> inputs;
  inputs.query = query.view();
  inputs.key = key.view();
  inputs.value = value.view();
  inputs.mask = dump.rules.mask();
  inputs.softcap = dump.softcap;
  dump.context_gradient = random_tensor<T, 4>(dump.context->shape(), 1, 99);
  const auto upstream = stored_as<T>(std::as_const(*dump.context_gradient).view());
  Tensor<T, 4> context(dump.context->shape());
  Tensor<T, 3> lse(dump.log_sum_exp->shape());
  engine::forward(inputs, {context.view(), std::nullopt, lse.view()});
  Tensor<T, 4> dq(dump.query.shape());
  Tensor<T, 4> dk(dump.key.shape());
  Tensor<T, 4> dv(dump.value.shape());
  engine::backward<T>(inputs, {context.view(), lse.view()}, {upstream.view()},
                      {dq.view(), dk.view(), dv.view(), std::nullopt, std::nullopt});
  dump.query_gradient = rounded_to<T>(dq);
  dump.key_gradient = rounded_to<T>(dk);
  dump.value_gradient = rounded_to<T>(dv);
}

template <class T>
void gradients_match_until_one_is_spoilt() {
  Dump dump = random_dump<T>();
  dump.softcap = 4;
  answer<T>(dump);
  add_gradients<T>(dump);
  const Verdict verdict = judge(dump, dtype_of<T>);
  EXPECT_TRUE(verdict.matches) << verdict.worst().name << " " << verdict.worst().largest_units;
  for (Index s = 0; s < 19; ++s) (*dump.key_gradient)(0, 1, s, 3) *= 1.01;
  EXPECT_FALSE(of(judge(dump, dtype_of<T>), "dk").matches);
  EXPECT_TRUE(of(judge(dump, dtype_of<T>), "dq").matches);
}

TEST(Verdict, GradientsOfTheEngineMatch) {
  gradients_match_until_one_is_spoilt<float>();
  gradients_match_until_one_is_spoilt<double>();
}

TEST(ErrorMap, DrawsTheWrongHeadWhereNotAllFit) {
  TensorVerdict tensor;
  tensor.name = "out";
  tensor.largest_allowed = 5;
  tensor.map.units = Tensor<float, 4>({4, 16, 6, 2});
  tensor.map.units(2, 7, 3, 1) = 50;
  const ErrorMap map = error_map(tensor, 32, 3);
  EXPECT_THAT(map.labels, ::testing::ElementsAre("sample 2 head 7"));
  EXPECT_EQ(map.left_out, 63);
  ASSERT_EQ(map.lines.size(), 1U);
  ASSERT_EQ(map.lines[0].size(), 3U);
  EXPECT_EQ(map.lines[0][1].units, 50);

  tensor.map.units(2, 7, 3, 1) = 4;  // all within their bounds: the first ones
  const ErrorMap right = error_map(tensor, 32, 3);
  EXPECT_EQ(right.labels.size(), 32U);
  EXPECT_EQ(right.labels[31], "sample 1 head 15");
  EXPECT_EQ(right.left_out, 32);
}

TEST(Verdict, BoundsOfGaussianErrors) {
  // One in a million: the two-sided quantile of one is 4.89, of a million 7.35 or so; the bound is a little above.
  EXPECT_NEAR(largest_of_rounding(1), 5.39, 0.01);
  EXPECT_NEAR(largest_of_rounding(1'000'000), 7.53, 0.01);
  EXPECT_NEAR(rms_of_rounding(1'000'000, 1), 1.0037, 1e-3);
  EXPECT_GT(rms_of_rounding(1, 1), 4.89);
}

}  // namespace
}  // namespace qkv
