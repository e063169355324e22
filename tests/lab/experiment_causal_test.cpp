// A mutation that made a test below fail: every model trained with the right mask (lab/experiment_causal.cpp): IsWellFormedAndHolds.
#include "lab/experiment_causal_measure.h"

#include <gtest/gtest.h>

#include "lab/experiment_runs.h"
#include "tests/lab/experiment_results.h"

namespace qkv {
namespace {

using test::named;
using test::number;

TEST(CausalExperiment, IsWellFormedAndHolds) {
  const lab::Experiment experiment = lab::run_causal(test::quick_options());
  test::expect_well_formed(experiment);
  test::expect_effects(
      experiment, {"loss_is_too_good", "useless_without_the_future", "influence_is_exactly_zero"});
  const lab::Table& table = named(experiment.tables, "influence");
  for (std::size_t t = 0; t < table.rows.size(); ++t) {
    EXPECT_EQ(number(table, t, "right"), 0) << t;
    EXPECT_GT(number(table, t, "off_by_one"), 0) << t;
    EXPECT_GT(number(table, t, "off"), 0) << t;
  }
}

// "the" and "cat" are words of the corpus, "at" is too short, "dog" is none.
TEST(CausalMeasure, PartInWords) {
  EXPECT_DOUBLE_EQ(lab::part_in_words("The cat at dog", "a cat, at the wall"), 6.0 / 14);
  EXPECT_EQ(lab::part_in_words("ccaatt", "a cat"), 0);
}

TEST(CausalMeasure, PrintableText) { EXPECT_EQ(lab::printable("a\nb\x01~\xff"), "a b·~·"); }

}  // namespace
}  // namespace qkv
