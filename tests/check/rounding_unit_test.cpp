// The model of rounding, against roundings that are carried out.
#include "check/rounding_unit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "base/rounding.h"

namespace qkv {
namespace {

double bf16(double x) { return static_cast<double>(BFloat16(x)); }
double f16(double x) { return static_cast<double>(Float16(x)); }

class Normal {
 public:
  double operator()() { return distribution_(engine_); }

 private:
  std::mt19937_64 engine_{3};
  std::normal_distribution<double> distribution_;
};

TEST(RoundingUnit, OneRoundingOfNumbersOfAnyOctave) {
  std::mt19937_64 engine(1);
  std::uniform_real_distribution<double> exponent(-4, 4);
  const double u = unit_roundoff(DType::BFloat16);
  double squares = 0;
  constexpr int kCount = 200'000;
  for (int i = 0; i < kCount; ++i) {
    const double x = std::exp2(exponent(engine));
    squares += std::pow((bf16(x) - x) / (u * x), 2);
  }
  EXPECT_NEAR(std::sqrt(squares / kCount), kRoundingRms, 0.003);
}

TEST(RoundingUnit, ArithmeticOfADType) {
  const Arithmetic half = arithmetic_of(DType::Float16, DType::Float32);
  EXPECT_EQ(half.storage, 0x1p-11);
  EXPECT_EQ(half.compute, 0x1p-24);
  EXPECT_EQ(half.output, 0x1p-11);
  EXPECT_EQ(half.storage_spacing, 0x1p-24);
  EXPECT_EQ(half.output_largest, 65504);
  const Arithmetic coarse = arithmetic_of(DType::Float64, DType::BFloat16);
  EXPECT_EQ(coarse.compute, 0x1p-53);
  EXPECT_EQ(coarse.output, 0x1p-8);
  EXPECT_THROW(arithmetic_of(DType::Float32, DType::Int32), std::invalid_argument);
}

TEST(RoundingUnit, GradualUnderflowHasAnAbsoluteError) {
  const Arithmetic half = arithmetic_of(DType::Float16, DType::Float16);
  std::mt19937_64 engine(2);
  std::uniform_real_distribution<double> tiny(1e-7, 1e-5);
  double squares = 0;
  constexpr int kCount = 100'000;
  for (int i = 0; i < kCount; ++i) {
    const double x = tiny(engine);
    squares += std::pow(f16(x) - x, 2);
  }
  EXPECT_NEAR(std::sqrt(squares / kCount) / std::sqrt(storage_variance(half, 5e-6)), 1, 0.05);
}

/// A kernel that stores bfloat16 between all of its steps, against exact arithmetic.
struct Row {
  static constexpr std::size_t kKeys = 24;
  static constexpr std::size_t kWidth = 32;
  std::vector<double> query = std::vector<double>(kWidth);
  std::vector<double> key = std::vector<double>(kKeys * kWidth);
  std::vector<double> value = std::vector<double>(kKeys);
  double scale = 0.15;  // no power of two

  std::vector<double> scores(bool round) const {
    std::vector<double> scores(kKeys);
    for (std::size_t s = 0; s < kKeys; ++s) {
      double sum = 0;
      for (std::size_t i = 0; i < kWidth; ++i) sum += query[i] * key[s * kWidth + i];
      scores[s] = round ? bf16(bf16(sum) * scale) : sum * scale;
    }
    return scores;
  }
  static std::vector<double> weights(const std::vector<double>& scores, bool round) {
    std::vector<double> weights(kKeys);
    double total = 0;
    for (std::size_t s = 0; s < kKeys; ++s) total += weights[s] = std::exp(scores[s]);
    for (double& weight : weights) weight = round ? bf16(weight / total) : weight / total;
    return weights;
  }
  double context(const std::vector<double>& weights, bool round) const {
    double sum = 0;
    for (std::size_t s = 0; s < kKeys; ++s) sum += weights[s] * value[s];
    return round ? bf16(sum) : sum;
  }
};

TEST(RoundingUnit, ARowThatStoresEveryStep) {
  const Arithmetic arithmetic = arithmetic_of(DType::BFloat16, DType::BFloat16);
  Normal normal;
  double context = 0;
  double weight = 0;
  double lse = 0;
  double score = 0;
  constexpr int kRows = 2000;
  for (int n = 0; n < kRows; ++n) {
    Row row;
    for (double& x : row.query) x = bf16(3 * normal());
    for (double& x : row.key) x = bf16(normal());
    for (double& x : row.value) x = bf16(normal());
    const auto exact = row.scores(false);
    const auto weights = Row::weights(exact, false);
    const std::vector<double> result = {row.context(weights, false)};
    const std::vector<double> none(Row::kKeys * Row::kWidth);
    std::vector<double> scores(Row::kKeys);
    score_variance(
        arithmetic,
        {row.query, std::span(none).first(Row::kWidth), row.key, none, row.scale, {}, false, exact},
        scores);
    std::vector<double> variance(1);
    context_variance(arithmetic, {weights, scores, row.value, {}, result}, variance);
    std::vector<double> weight_variances(Row::kKeys);
    weight_variance(arithmetic, weights, scores, weight_variances);

    const auto rounded = row.scores(true);
    const auto rounded_weights = Row::weights(rounded, true);
    context += std::pow(row.context(rounded_weights, true) - result[0], 2) / variance[0];
    double total = 0;
    double exact_total = 0;
    for (std::size_t s = 0; s < Row::kKeys; ++s) {
      const double count = Row::kKeys;
      weight += std::pow(rounded_weights[s] - weights[s], 2) / weight_variances[s] / count;
      score += std::pow(rounded[s] - exact[s], 2) / scores[s] / count;
      total += std::exp(rounded[s]);
      exact_total += std::exp(exact[s]);
    }
    lse += std::pow(bf16(std::log(total)) - std::log(exact_total), 2) /
           log_sum_exp_variance(arithmetic, std::log(exact_total), weights, scores);
  }
  // The model may round once more than this kernel, never less.
  for (const double mean : {context, weight, lse, score}) {
    EXPECT_LT(std::sqrt(mean / kRows), 1.05);
    EXPECT_GT(std::sqrt(mean / kRows), 0.6);
  }
}

TEST(RoundingUnit, EqualWeightsAreRoundedAlike) {
  // n equal weights 1/n, values around 5: what the weights' roundings make does not average out.
  const Arithmetic arithmetic = arithmetic_of(DType::BFloat16, DType::BFloat16);
  Normal normal;
  double squares = 0;
  int count = 0;
  for (std::size_t n = 3; n < 200; ++n) {
    const std::vector<double> weight(n, 1 / static_cast<double>(n));
    const std::vector<double> none(n);
    std::vector<double> value(n);
    for (double& x : value) x = bf16(5 + normal());
    double exact = 0;
    double rounded = 0;
    for (std::size_t s = 0; s < n; ++s) {
      exact += weight[s] * value[s];
      rounded += bf16(weight[s]) * value[s];
    }
    std::vector<double> variance(1);
    context_variance(arithmetic, {weight, none, value, {}, std::vector<double>{exact}}, variance);
    const double units = (bf16(rounded) - exact) / std::sqrt(variance[0]);
    EXPECT_LT(std::fabs(units), 3) << n;
    squares += units * units;
    ++count;
  }
  // The model has the quotient rounded and the exponential, which is 1 here.
  EXPECT_LT(std::sqrt(squares / count), 1.05);
  EXPECT_GT(std::sqrt(squares / count), 0.6);
}

TEST(RoundingUnit, AScoreWithALargeErrorMovesItsWeightAsFarAsItCan) {
  // The share of key 1, whose score has a normal error: p' = min(1, p·exp(δ)), by drawing it.
  const Arithmetic arithmetic = arithmetic_of(DType::Float64, DType::Float64);
  for (const double deviation : {0.3, 1.0, 4.0, 10.0}) {
    for (const double gap : {0.7, 3.0, 12.0}) {
      Normal normal;
      double moved = 0;
      constexpr int kCount = 200'000;
      for (int i = 0; i < kCount; ++i) {
        const double p = std::exp(-gap);
        moved += std::pow(std::min(1.0, p * std::exp(deviation * normal())) - p, 2) / kCount;
      }
      const std::vector<double> weight = {std::exp(-gap)};
      const std::vector<double> score = {deviation * deviation};
      const std::vector<double> value = {1};
      const std::vector<double> context = {0};
      std::vector<double> variance(1);
      context_variance(arithmetic, {weight, score, value, {}, context}, variance);
      if (moved < 1e-9) continue;  // too rare to be drawn
      EXPECT_LT(std::sqrt(variance[0] / moved), 1.7) << deviation << " " << gap;
      EXPECT_GT(std::sqrt(variance[0] / moved), 0.8) << deviation << " " << gap;
    }
  }
}

}  // namespace
}  // namespace qkv
