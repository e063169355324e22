// A mutation that made a test below fail: projections that are never tied (lab/experiment_projections.cpp): IsWellFormedAndHolds.
#include <gtest/gtest.h>

#include <stdexcept>

#include "lab/experiment_runs.h"
#include "lab/experiment_training.h"
#include "tests/lab/experiment_results.h"

namespace qkv {
namespace {

using test::named;
using test::number;

TEST(ProjectionsExperiment, IsWellFormedAndHolds) {
  const lab::Experiment experiment = lab::run_projections(test::quick_options());
  test::expect_well_formed(experiment);
  test::expect_effects(experiment, {"separate_projections_recall", "tied_matching_finds_itself",
                                    "tied_payload_competes", "width_changes_the_price"});
  // Tied ones have Dh·D parameters less.
  const lab::Table& table = named(experiment.tables, "recall");
  EXPECT_EQ(number(table, 0, "parameters") - number(table, 1, "parameters"), 64 * 64);
  EXPECT_EQ(number(table, 3, "parameters") - number(table, 5, "parameters"), 8 * 64);
}

lab::TrainingSetup small_setup() {
  lab::TrainingSetup setup;
  setup.task = copy_task({.symbols = 4, .length = 4});
  setup.decoder.vocabulary = setup.task.vocabulary;
  setup.decoder.context = setup.task.tokens;
  setup.decoder.model_width = 16;
  setup.decoder.layers = 1;
  setup.training.steps = 5;
  setup.training.sequences = 4;
  return setup;
}

TEST(TrainingRuns, SameSeedSameNumbers) {
  const lab::TrainedRun one = lab::train_once(small_setup(), 3, {}, {});
  const lab::TrainedRun other = lab::train_once(small_setup(), 3, {}, {});
  EXPECT_EQ(one.history.loss, other.history.loss);
  EXPECT_NE(one.history.loss, lab::train_once(small_setup(), 4, {}, {}).history.loss);
}

TEST(TrainingRuns, InjectedBugIsTrainedWith) {
  lab::ExperimentOptions options;
  options.inject = "M8";
  EXPECT_EQ(lab::train_once(small_setup(), 3, options, {}).decoder.change(0).bug,
            AttentionBug::CausalOffByOne);
  options.inject = "causal-off-by-two";
  EXPECT_THROW(lab::train_once(small_setup(), 3, options, {}), std::invalid_argument);
}

TEST(TrainingRuns, InjectedBugBringsWhatItIsAbout) {
  lab::ExperimentOptions options;
  options.inject = "G1";
  const DecoderOptions grouped = lab::train_once(small_setup(), 3, options, {}).decoder.options();
  EXPECT_EQ(grouped.kv_heads, grouped.heads / 2);
  options.inject = "M9";
  EXPECT_EQ(lab::train_once(small_setup(), 3, options, {}).decoder.options().window, 2);
  options.inject = "M13";  // needs T = H, which is not given
  const lab::TrainedVariant variant =
      lab::train_variant({"plain", "普通"}, small_setup(), 1, options, {});
  EXPECT_EQ(variant.runs.front().decoder.change(0).bug, std::nullopt);
  EXPECT_EQ(variant.name.english, "plain");
  options.inject = "causal-Dropped";
  EXPECT_EQ(lab::train_variant({"plain", "普通"}, small_setup(), 1, options, {}).name.english,
            "plain + M7");
}

TEST(TrainingRuns, ChangedModelHasTheSameParameters) {
  const lab::TrainedRun run = lab::train_once(small_setup(), 3, {}, {});
  AttentionChange change;
  change.bug = AttentionBug::CausalDropped;
  const Decoder<float> changed = lab::with_changes(run.decoder, {change});
  const auto a = run.decoder.parameters();
  const auto b = changed.parameters();
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(a[i].elements, b[i].elements)) << a[i].name;
  }
}

}  // namespace
}  // namespace qkv
