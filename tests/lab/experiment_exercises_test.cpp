// Mutations that each made a test below fail: MaskedBy::Renormalizing without its division (lab/hand_written.cpp): LateMaskAsByHand; as many kv
// heads as heads (lab/experiment_exercises_structure.cpp): ParametersAsCounted; a causal rule j <= p + 1, or a prefix that is ignored
// (base/mask.cpp): FirstPosition; cosine without the norm of the keys (lab/similarity.cpp): IsWellFormedAndHolds, Similarity.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "lab/experiment_runs.h"
#include "lab/similarity.h"
#include "tests/lab/experiment_results.h"

namespace qkv {
namespace {

using test::named;
using test::number;

const lab::Experiment& exercises() {
  static const lab::Experiment experiment = lab::run_exercises(test::quick_options());
  return experiment;
}

// What the clock says is not asserted.
TEST(ExercisesExperiment, IsWellFormedAndHolds) {
  test::expect_well_formed(exercises());
  test::expect_effects(
      exercises(),
      {"head_width_is_64", "late_sums_below_one", "renormalising_fails", "heads_cost_no_parameters",
       "first_position_sees_itself", "cosine_is_bounded", "dot_product_learns"});
}

TEST(ExercisesExperiment, ShapesOfTheLesson) {
  const lab::Table& table = named(exercises().tables, "shapes");
  std::vector<std::string> shapes;
  for (const auto& row : table.rows) shapes.push_back(std::get<std::string>(row.at(2)));
  for (const char* shape : {"[2, 5, 768]", "[2, 12, 5, 64]", "[2, 12, 5, 5]"}) {
    EXPECT_NE(std::ranges::find(shapes, shape), shapes.end()) << shape;
  }
}

// Logits 0 and 1 visible, m hidden: what is left is (1 + e)/(1 + e + e^m).
TEST(ExercisesExperiment, LateMaskAsByHand) {
  const lab::Table& table = named(exercises().tables, "late_limits");
  const double e = std::exp(1.0);
  for (std::size_t row = 0; row < 8; ++row) {  // float64
    const double hidden = std::exp(number(table, row, "logit"));
    EXPECT_NEAR(number(table, row, "sum"), (1 + e) / (1 + e + hidden), 1e-15);
    EXPECT_NEAR(number(table, row, "right"), e / (1 + e), 1e-15);
    if (row < 7) {
      EXPECT_NEAR(number(table, row, "divided"), e / (1 + e), 1e-15);
    } else {
      EXPECT_TRUE(std::isnan(number(table, row, "divided")));
    }
  }
}

// 4·768² = 2,359,296; one kv head of 96 takes 2·768·(768 − 8) from that; 96 heads of 64 are 4·768·6,144.
TEST(ExercisesExperiment, ParametersAsCounted) {
  const lab::Table& table = named(exercises().tables, "parameters");
  for (std::size_t row = 0; row < table.rows.size(); ++row)
    EXPECT_EQ(number(table, row, "parameters"), 2359296);
  const std::size_t last = table.rows.size() - 1;
  EXPECT_EQ(number(table, last, "one_kv_head"), 2359296 - 2 * 768 * (768 - 8));
  EXPECT_EQ(number(table, last, "fixed_width"), 4 * 768 * 6144);
}

TEST(ExercisesExperiment, FirstPosition) {
  const lab::Table& table = named(exercises().tables, "first_position");
  for (Index token = 0; token < 6; ++token) {
    const std::string column = "token_" + std::to_string(token);
    EXPECT_EQ(number(table, 0, column) != 0, token < 1) << token;
    EXPECT_EQ(number(table, 1, column) != 0, token < 3) << token;
    EXPECT_NE(number(table, 2, column), 0) << token;
  }
}

// q = (3, 4), k = (4, 3): q·k = 24, norms 5.
TEST(Similarity, AsByHand) {
  lab::MatchingInputs inputs{Tensor<float, 2>({1, 2}), Tensor<float, 2>({1, 2}),
                             Tensor<float, 1>({2})};
  inputs.query(0, 0) = inputs.key(0, 1) = 3;
  inputs.query(0, 1) = inputs.key(0, 0) = 4;
  inputs.weight(0) = 2;
  inputs.weight(1) = -1;
  Tensor<float, 2> scores({1, 1});
  lab::match_by_dot_product(inputs, scores, {});
  EXPECT_NEAR(scores(0, 0), 24 / std::sqrt(2.0), 1e-5);
  lab::match_by_cosine(inputs, scores, {});
  EXPECT_NEAR(scores(0, 0), 24.0 / 25, 1e-6);
  lab::match_additively(inputs, scores);
  EXPECT_NEAR(scores(0, 0), std::tanh(7.0), 1e-6);
}

}  // namespace
}  // namespace qkv
