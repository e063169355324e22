// Tests of faith on a model that one can compute by hand, and rankings.
//
// Mutations that made a test below fail: the least important token taken first (explain/agreement.cpp), a verdict turned round
// (judgement.cpp): RightScoresBeatRandomOnes; scores that are not scaled (faith.cpp): InfidelityOfALinearModel; special tokens as
// candidates (explained_model.cpp): SpecialTokensStay; an attribution compared with itself (sanity.cpp): TellsWhatHeedsTheWeights.
#include "explain/faith.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "explain/agreement.h"
#include "explain/judgement.h"
#include "explain/sanity.h"
#include "tests/explain/explain_data.h"
#include "tests/explain/linear_model.h"

namespace qkv {
namespace {

using explain::Occlusion;

// Contributions 4, 2, 1, −1 of a target of 6.
test::LinearModel by_hand() {
  return test::LinearModel({.slopes = {4, 2, 1, -1}, .embeddings = {1, 1, 1, 1}});
}

TEST(Faith, CurvesByHand) {
  const test::LinearModel model = by_hand();
  const std::array<Index, 4> order = {0, 1, 2, 3};
  const explain::Curves curves = explain::curves(model, order, Occlusion::ReplaceToken);
  EXPECT_EQ(curves.deletion.part, (std::vector{0.0, 0.25, 0.5, 0.75, 1.0}));
  EXPECT_EQ(curves.deletion.target, (std::vector{6.0, 2.0, 0.0, -1.0, 0.0}));
  EXPECT_EQ(curves.insertion.target, (std::vector{0.0, 4.0, 6.0, 7.0, 6.0}));
  // Trapezoids of width ¼.
  EXPECT_DOUBLE_EQ(curves.deletion.area, 0.25 * (3 + 2 + 0 - 1 + 0));
  EXPECT_DOUBLE_EQ(curves.insertion.area, 0.25 * (0 + 4 + 6 + 7 + 3));
  // 10 and 20 % are one token, 50 % are two.
  EXPECT_DOUBLE_EQ(curves.comprehensiveness, (4 + 4 + 6) / 3.0);
  EXPECT_DOUBLE_EQ(curves.sufficiency, (2 + 2 + 0) / 3.0);
}

TEST(Faith, EverythingDeletedIsNothingInserted) {
  const explain::DecoderModel model = test::random_model(8, 31);
  const std::vector<Index> order = explain::candidates(model.text());
  for (const Occlusion how : {Occlusion::HideKey, Occlusion::ZeroValue, Occlusion::RemoveToken,
                              Occlusion::ReplaceToken}) {
    const explain::Curves curves = explain::curves(model, order, how);
    EXPECT_EQ(curves.deletion.target.back(), curves.insertion.target.front());
    EXPECT_EQ(curves.deletion.target.front(), curves.insertion.target.back());
    EXPECT_EQ(curves.deletion.target.front(), explain::plain_target(model));
  }
}

TEST(Faith, CurvesOfLongTextsHaveTwentySteps) {
  std::vector<double> ones(50, 1);
  const test::LinearModel model({.slopes = ones, .embeddings = ones});
  std::vector<Index> order = explain::candidates(model.text());
  const explain::Curves curves = explain::curves(model, order, Occlusion::ReplaceToken);
  ASSERT_EQ(curves.deletion.part.size(), 21U);
  for (std::size_t i = 0; i <= 20; ++i) {
    EXPECT_NEAR(curves.deletion.target[i], 50 * (1 - curves.deletion.part[i]), 1e-12);
  }
  EXPECT_NEAR(curves.deletion.area, 25, 1e-12);
  EXPECT_NEAR(curves.comprehensiveness, (5 + 10 + 25) / 3.0, 1e-12);
}

// Contributions foretell a linear model, in any unit; half of them foretell half.
TEST(Faith, InfidelityOfALinearModel) {
  const test::LinearModel model = by_hand();
  const auto sets = explain::perturbations(model, Occlusion::ReplaceToken, 50, 3);
  const std::vector<double> right = {4, 2, 1, -1};
  const std::vector<double> scaled = {-40, -20, -10, 10};
  EXPECT_NEAR(explain::infidelity(right, sets).share, 0, 1e-14);
  EXPECT_NEAR(explain::infidelity(scaled, sets).share, 0, 1e-14);
  EXPECT_EQ(explain::infidelity(std::vector<double>(4, 0.0), sets).share, 1);
  // By hand: only the first score is there. β = mean fall where token 0 is in the set.
  const std::vector<double> first = {1, 0, 0, 0};
  double falls = 0;
  double with_first = 0;
  double squares = 0;
  for (std::size_t i = 0; i < sets.sets.size(); ++i) {
    squares += sets.falls[i] * sets.falls[i];
    if (std::ranges::count(sets.sets[i], 0) == 0) continue;
    with_first += 1;
    falls += sets.falls[i];
  }
  const double beta = falls / with_first;
  double left = 0;
  for (std::size_t i = 0; i < sets.sets.size(); ++i) {
    const double told = std::ranges::count(sets.sets[i], 0) == 0 ? 0 : beta;
    left += (told - sets.falls[i]) * (told - sets.falls[i]);
  }
  EXPECT_NEAR(explain::infidelity(first, sets).share, left / squares, 1e-12);
  EXPECT_NEAR(explain::infidelity(first, sets).value, left / 50, 1e-12);
}

TEST(Faith, SpecialTokensStay) {
  const test::LinearModel model(
      {.slopes = {9, 1, 2}, .embeddings = {1, 1, 1}, .special = {true, false, false}});
  EXPECT_EQ(explain::candidates(model.text()), (std::vector<Index>{1, 2}));
  EXPECT_EQ(explain::candidates(test::random_model(3, 1).text()), (std::vector<Index>{0, 1}));
  const auto sets = explain::perturbations(model, Occlusion::ReplaceToken, 20, 1);
  for (const auto& set : sets.sets) EXPECT_EQ(std::ranges::count(set, 0), 0);
}

TEST(Faith, RightScoresBeatRandomOnes) {
  const test::LinearModel model(
      {.slopes = {8, 4, 2, 1, 0.5, 0.25}, .embeddings = {1, 1, 1, 1, 1, 1}});
  const explain::FaithOptions options{.random_runs = 20};
  const explain::FaithSetup setup = explain::faith_setup(model, options);
  const auto random = explain::random_baseline(model, setup, options);
  const std::vector<double> scores = {6, 5, 4, 3, 2, 1};
  const auto measured = explain::measure_faith(model, setup, scores);
  EXPECT_LT(measured.faith.deletion_area, random.faith.deletion_area.low);
  EXPECT_GT(measured.faith.insertion_area, random.faith.insertion_area.high);
  EXPECT_EQ(measured.faith.spearman, 1);
  EXPECT_EQ(measured.faith.kendall, 1);
  EXPECT_LT(random.faith.spearman.low, 0);
  EXPECT_GT(random.faith.spearman.high, 0);

  const explain::Judgement right = explain::judge(setup, scores, measured.faith, random);
  EXPECT_EQ(right.verdict, explain::Verdict::Agrees);
  EXPECT_EQ(right.pointed, 0);
  EXPECT_EQ(right.faster_than, 20);
  EXPECT_DOUBLE_EQ(right.decisive_share, 6.0 / 21);
  const std::vector<double> wrong_scores = {0, 2, 3, 4, 5, 6};
  const explain::Judgement wrong = explain::judge(
      setup, wrong_scores, explain::measure_faith(model, setup, wrong_scores).faith, random);
  EXPECT_EQ(wrong.verdict, explain::Verdict::Misleads);
  EXPECT_EQ(wrong.pointed, 5);
  EXPECT_EQ(wrong.decisive, 0);
  EXPECT_EQ(wrong.pointed_fall, 0.25);
  EXPECT_EQ(wrong.decisive_fall, 8);
  EXPECT_EQ(wrong.faster_than, 0);
}

// Thirty tokens of which each does a thirtieth: no heat map can point to the one that matters.
TEST(Faith, NothingMattersWhereAllTokensShareTheFall) {
  const std::vector<double> ones(30, 1);
  const test::LinearModel model({.slopes = ones, .embeddings = ones});
  const explain::FaithSetup setup = explain::faith_setup(model, {});
  EXPECT_EQ(setup.target - setup.baseline, 30);
  const auto judgement =
      explain::judge(setup, ones, explain::measure_faith(model, setup, ones).faith, {});
  EXPECT_EQ(judgement.decisive_fall, 1);
  EXPECT_EQ(judgement.verdict, explain::Verdict::NothingFound);
}

TEST(Faith, NothingMattersWhereNothingFalls) {
  const test::LinearModel model({.slopes = {-1, -2}, .embeddings = {1, 1}});
  const explain::FaithOptions options;
  const explain::FaithSetup setup = explain::faith_setup(model, options);
  const std::vector<double> scores = {1, 0};
  const auto judgement =
      explain::judge(setup, scores, explain::measure_faith(model, setup, scores).faith,
                     explain::random_baseline(model, setup, options));
  EXPECT_EQ(judgement.verdict, explain::Verdict::NothingFound);
}

// "Shuffled", the linear model has its slopes in reverse: gradients follow, weights do not.
TEST(Sanity, TellsWhatHeedsTheWeights) {
  const test::LinearModel model({.slopes = {1, 2, 3, 4}, .embeddings = {1, 1, 1, 1}});
  const auto plain = explain::attributions(model);
  const auto checks = explain::sanity_checks(model, plain.list, {.seeds = 2});
  for (const auto& check : checks) {
    ASSERT_EQ(check.steps.size(), 1U) << check.key;
    EXPECT_NE(check.key, "replace_token");
    if (check.key == "gradient_times_input" || check.key == "integrated_gradients") {
      EXPECT_EQ(check.steps[0].agreement.mean, -1) << check.key;
    } else if (check.key == "raw_attention") {
      EXPECT_EQ(check.steps[0].agreement.mean, 1);
    }
  }
}

TEST(Agreement, SidesThatDoNotVaryAgreeInNothing) {
  const std::vector<double> flat = {1, 1, 1};
  const std::vector<double> rising = {1, 2, 3};
  EXPECT_EQ(explain::spearman(flat, rising), 0);
  EXPECT_EQ(explain::kendall(flat, rising), 0);
  EXPECT_THROW((void)explain::spearman(flat, std::vector{1.0}), std::invalid_argument);
}

// Brown, Cai and DasGupta, "Interval Estimation for a Binomial Proportion" (2001): the ends of 0 of n and n of n are z²/(n + z²).
TEST(Agreement, WilsonInterval) {
  const double z2 = 1.959963984540054 * 1.959963984540054;
  EXPECT_EQ(explain::wilson_interval(0, 100).low, 0);
  EXPECT_NEAR(explain::wilson_interval(0, 100).high, z2 / (100 + z2), 1e-15);
  EXPECT_EQ(explain::wilson_interval(100, 100).high, 1);
  EXPECT_NEAR(explain::wilson_interval(100, 100).low, 100 / (100 + z2), 1e-15);
  // Both ends solve (p − x)² = z²·x(1 − x)/n.
  const explain::Interval some = explain::wilson_interval(7, 20);
  for (const double x : {some.low, some.high}) {
    EXPECT_NEAR((0.35 - x) * (0.35 - x), z2 * x * (1 - x) / 20, 1e-15);
  }
  EXPECT_EQ(explain::wilson_interval(0, 0).high, 1);
}

}  // namespace
}  // namespace qkv
