// Mutations that each made a test below fail: heads that are D wide whatever their number (lab/experiment_heads.cpp): IsWellFormedAndHolds; a
// rank that counts every pivot (lab/matrix_rank.cpp): MatrixRank.
#include <gtest/gtest.h>

#include "lab/experiment_runs.h"
#include "lab/matrix_rank.h"
#include "tests/lab/experiment_results.h"

namespace qkv {
namespace {

using test::named;
using test::number;

TEST(HeadsExperiment, IsWellFormedAndHolds) {
  const lab::Experiment experiment = lab::run_heads(test::quick_options());
  test::expect_well_formed(experiment);
  test::expect_effects(experiment,
                       {"parameters_do_not_change", "rank_is_the_width", "quality_differs_little"});
  const lab::Table& table = named(experiment.tables, "heads");
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    const double width = 64 / number(table, row, "heads");
    EXPECT_LE(number(table, row, "rank"), width);
    if (width <= 32) {
      EXPECT_EQ(number(table, row, "rank"), width);
    }
    EXPECT_EQ(number(table, row, "parameters"), number(table, 0, "parameters"));
  }
}

// u·vᵀ has rank 1, with another such term rank 2.
TEST(MatrixRank, OfSumsOfProducts) {
  Tensor<double, 2> matrix({5, 4});
  EXPECT_EQ(lab::matrix_rank(matrix), 0);
  for (Index i = 0; i < 5; ++i) {
    for (Index j = 0; j < 4; ++j) matrix(i, j) = static_cast<double>((i + 1) * (j - 2));
  }
  EXPECT_EQ(lab::matrix_rank(matrix), 1);
  for (Index i = 0; i < 5; ++i) {
    for (Index j = 0; j < 4; ++j) matrix(i, j) += static_cast<double>((i * i) * (3 - j * j));
  }
  EXPECT_EQ(lab::matrix_rank(matrix), 2);
  for (Index i = 0; i < 4; ++i) matrix(i, i) += 100;
  EXPECT_EQ(lab::matrix_rank(matrix), 4);
}

}  // namespace
}  // namespace qkv
