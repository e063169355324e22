// Mutations that each made a test below fail: the library's default scale 1/√Dk → 1/Dk (base/validate.cpp): VarianceIsDkAndOne; softmax_state
// that ignores its scale: Saturation; dot_variance without the term of the mean: AssumptionsMatter; training with the scale where it
// should be missing (lab/experiment_scale_training.cpp): IsWellFormedAndHolds.
#include "lab/experiment_scale_measure.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lab/experiment_runs.h"
#include "tests/lab/experiment_results.h"

namespace qkv {
namespace {

using test::named;
using test::number;

const lab::Experiment& scale() {
  static const lab::Experiment experiment = lab::run_scale(test::quick_options());
  return experiment;
}

TEST(ScaleExperiment, IsWellFormedAndHolds) {
  test::expect_well_formed(scale());
  test::expect_effects(
      scale(), {"variance_is_dk", "variance_is_one", "assumptions_matter", "softmax_saturates",
                "gradient_vanishes", "training_needs_the_scale"});
}

TEST(ScaleExperiment, VarianceIsDkAndOne) {
  const lab::Table& table = named(scale().tables, "logit_variance");
  EXPECT_EQ(number(table, 0, "head_width"), 1);
  EXPECT_EQ(number(table, table.rows.size() - 1, "head_width"), 1024);
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    const double width = number(table, row, "head_width");
    EXPECT_NEAR(number(table, row, "unscaled") / width, 1, 0.05) << width;
    EXPECT_NEAR(number(table, row, "scaled"), 1, 0.05) << width;
  }
}

// By hand: mean 1 adds 2·Dk, deviation 2 multiplies by 2⁴, correlation ½ adds Dk·(Dk − 1)/4.
TEST(ScaleExperiment, AssumptionsMatter) {
  EXPECT_DOUBLE_EQ(lab::Components{}.dot_variance(64), 64);
  EXPECT_DOUBLE_EQ(lab::Components{.mean = 1}.dot_variance(64), 3 * 64);
  EXPECT_DOUBLE_EQ(lab::Components{.deviation = 2}.dot_variance(64), 16 * 64);
  EXPECT_DOUBLE_EQ(lab::Components{.correlation = 0.5}.dot_variance(64), 64 + 64 * 63 / 4);
  const lab::Table& table = named(scale().tables, "assumptions");
  const double expected[] = {3, 3, 16, 16, 1 + 63 / 4.0, 1 + 1023 / 4.0};
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    EXPECT_NEAR(number(table, row, "scaled") / expected[row], 1, 0.1) << row;
  }
}

TEST(ScaleExperiment, Saturation) {
  const lab::Table& table = named(scale().tables, "saturation");
  const std::size_t last = table.rows.size() - 1;  // scaled; the one before is not
  EXPECT_LT(number(table, last - 1, "entropy"), 0.2);
  EXPECT_GT(number(table, last, "entropy"), 0.8);
  EXPECT_GT(number(table, last - 1, "nearly_zero"), 0.5);
  EXPECT_LT(number(table, last, "nearly_zero"), 0.01);
  EXPECT_LT(number(table, last - 1, "gradient_median"),
            1e-3 * number(table, last, "gradient_median"));
}

TEST(ScaleExperiment, SameSeedSameNumbers) {
  const lab::LogitRequest request{.components = {}, .width = 8, .pairs = 1500, .seed = 3};
  engine::Options one_thread;
  one_thread.threads = 1;
  EXPECT_EQ(lab::logit_variance(request, {}).scaled,
            lab::logit_variance(request, one_thread).scaled);
}

TEST(ScaleExperiment, StopsWhereItIsTold) {
  lab::ExperimentOptions options = test::quick_options();
  options.progress = [](std::string_view, double) { return false; };
  EXPECT_THROW(lab::run_scale(options), lab::Interrupted);
}

}  // namespace
}  // namespace qkv
