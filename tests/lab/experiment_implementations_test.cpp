// A mutation that made a test below fail: view_strides that takes any axes for one block (base/tensor.cpp): MergingNeedsACopy.
// PyTorch is not beside this program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/experiment_runs.h"
#include "tests/lab/experiment_results.h"

namespace qkv {
namespace {

using test::named;
using test::number;

const lab::Experiment& implementations() {
  static const lab::Experiment experiment = lab::run_implementations(test::quick_options());
  return experiment;
}

TEST(ImplementationsExperiment, IsWellFormedAndHolds) {
  test::expect_well_formed(implementations());
  test::expect_effects(implementations(), {"engine_is_the_oracle", "fast_and_right",
                                           "strides_change_no_bit", "merging_needs_a_copy"});
}

TEST(ImplementationsExperiment, DifferencesAreRounding) {
  const lab::Table& table = named(implementations().tables, "oracle");
  for (const char* column : {"forward", "gradient"}) {
    EXPECT_LT(number(table, 0, column), 1e-12);
    EXPECT_GT(number(table, 1, column), 0);  // float32 is not float64
    EXPECT_LT(number(table, 1, column), 1e-5);
  }
}

TEST(ImplementationsExperiment, SaysLoudlyWhatIsMissing) {
  EXPECT_THAT(implementations().seen.english, ::testing::StartsWith("NOT COMPARED"));
  EXPECT_THAT(implementations().seen.english, ::testing::HasSubstr("PyTorch's C++ API"));
}

// Strides of [2,4,5,8] are 160, 40, 8, 1.
TEST(ImplementationsExperiment, MergingNeedsACopy) {
  const lab::Table& table = named(implementations().tables, "merge");
  EXPECT_EQ(std::get<std::string>(table.rows.at(0).at(2)), "[160, 8, 40, 1]");
  EXPECT_EQ(std::get<lab::Text>(table.rows.at(0).at(3)).english, "none: copy first");
  EXPECT_EQ(std::get<std::string>(table.rows.at(1).at(3)), "[160, 32, 1]");
}

}  // namespace
}  // namespace qkv
