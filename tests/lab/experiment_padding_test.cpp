// Mutations that each made a test below fail: PaddingForm::Head as [B,1,1,T] (lab/experiment_padding_measure.cpp): all of them; scores that
// do not grow (lab/hand_written.cpp): Broadcasts; every model trained with the right mask (lab/experiment_padding_training.cpp):
// IsWellFormedAndHolds.
#include "lab/experiment_padding_measure.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lab/experiment_runs.h"
#include "tests/lab/experiment_results.h"

namespace qkv {
namespace {

using lab::PaddingForm;
using test::named;
using test::number;

const lab::Experiment& padding() {
  static const lab::Experiment experiment = lab::run_padding(test::quick_options());
  return experiment;
}

TEST(PaddingExperiment, IsWellFormedAndHolds) {
  test::expect_well_formed(padding());
  test::expect_effects(padding(),
                       {"error_where_t_is_not_h", "silent_where_t_is_h", "grows_where_one_head",
                        "head_axis_hides_heads", "infinity_makes_nan", "finite_fill_hides_the_bug",
                        "query_axis_sees_padding", "check_names_it", "causal_hides_the_bug",
                        "loss_falls_all_the_same"});
}

TEST(PaddingExperiment, Broadcasts) {
  const lab::PaddedBatch one_head = lab::draw_padded({.heads = 1, .tokens = 4}, 17);
  EXPECT_EQ(lab::attend_padded(one_head, PaddingForm::Head, -1e9).weights.shape(),
            (Extents<4>{2, 4, 4, 4}));
  EXPECT_EQ(lab::attend_padded(one_head, PaddingForm::Query, -1e9).weights.shape(),
            (Extents<4>{2, 1, 4, 4}));
  const lab::PaddedBatch six_tokens = lab::draw_padded({.heads = 4, .tokens = 6}, 17);
  EXPECT_THROW(lab::attend_padded(six_tokens, PaddingForm::Head, -1e9), std::invalid_argument);
}

// Of 4 heads × 4 queries × 4 keys, tokens 2 and 3 are padding.
TEST(PaddingExperiment, CellsAsCounted) {
  const lab::PaddedBatch batch = lab::draw_padded({.heads = 4, .tokens = 4}, 17);
  const lab::HiddenCells key = lab::hidden_cells(batch, PaddingForm::Key);
  EXPECT_EQ(key.hidden, 4 * 4 * 2);
  EXPECT_EQ(key.valid_hidden, 0);
  EXPECT_EQ(key.padding_seen, 0);
  const lab::HiddenCells head = lab::hidden_cells(batch, PaddingForm::Head);
  EXPECT_EQ(head.hidden, 2 * 4 * 4);
  EXPECT_EQ(head.valid_hidden, 2 * 4 * 2);
  EXPECT_EQ(head.padding_seen, 2 * 4 * 2);
  EXPECT_EQ(head.blind_heads, (std::vector<Index>{2, 3}));
  EXPECT_TRUE(head.blind_rows.empty());
  const lab::HiddenCells query = lab::hidden_cells(batch, PaddingForm::Query);
  EXPECT_EQ(query.blind_rows, (std::vector<Index>{2, 3}));
  EXPECT_EQ(query.padding_seen, 4 * 2 * 2);
}

TEST(PaddingExperiment, NamedCellsOfTheWrongAxis) {
  const lab::PaddedBatch batch = lab::draw_padded({.heads = 4, .tokens = 4}, 17);
  const Tensor<double, 4> nan =
      lab::attend_padded(batch, PaddingForm::Head, -std::numeric_limits<double>::infinity())
          .weights;
  const Tensor<double, 4> uniform = lab::attend_padded(batch, PaddingForm::Head, -1e9).weights;
  const lab::AttentionResults right = lab::attend_padded(batch);
  for (Index t = 0; t < 4; ++t) {
    for (Index s = 0; s < 4; ++s) {
      EXPECT_TRUE(std::isnan(nan(0, 2, t, s)) && std::isnan(nan(0, 3, t, s)));
      EXPECT_EQ(uniform(0, 2, t, s), 0.25);
      EXPECT_GT(uniform(0, 0, t, s), 0);                                   // padding included
      EXPECT_NEAR(uniform(1, 3, t, s), right.weights(1, 3, t, s), 1e-15);  // no padding there
    }
    EXPECT_EQ(right.weights(0, 0, t, 2), 0);
  }
}

TEST(PaddingExperiment, Outcomes) {
  const lab::Table& table = named(padding().tables, "outcome");
  for (std::size_t row : {0U, 1U}) {
    EXPECT_LT(number(table, row, "error"), 1e-12);
    EXPECT_EQ(number(table, row, "padding_weight"), 0);
  }
  EXPECT_EQ(number(table, 2, "nan"), 0.5);
  for (std::size_t row : {3U, 4U, 5U}) {
    EXPECT_EQ(number(table, row, "nan"), 0);
    EXPECT_EQ(number(table, row, "sums"), 1);
    EXPECT_GT(number(table, row, "error"), 0.1);
    EXPECT_LT(number(table, row, "full_error"), 1e-12);
  }
}

}  // namespace
}  // namespace qkv
