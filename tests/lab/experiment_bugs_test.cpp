// Mutations that each made a test below fail: with_other_tokens that replaces none (lab/bug_tests.cpp): CaughtAsReasoned; every model trained
// without its bug (lab/experiment_bugs.cpp): EveryBugChangesWhatIsLearned; an oracle that is given no mask (lab/bug_tests.cpp):
// IsWellFormedAndHolds, RightAttentionPasses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "lab/bug_tests.h"
#include "lab/experiment_injected.h"
#include "lab/experiment_runs.h"
#include "tests/lab/experiment_results.h"

namespace qkv {
namespace {

using test::named;
using test::number;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAreArray;

const lab::Experiment& bugs() {
  static const lab::Experiment experiment = lab::run_bugs(test::quick_options());
  return experiment;
}

TEST(BugsExperiment, IsWellFormedAndHolds) {
  test::expect_well_formed(bugs());
  test::expect_effects(bugs(), {"oracle_catches_every_bug", "gradient_check_catches_none",
                                "cheap_tests_catch_all_together", "training_says_little"});
}

TEST(BugsExperiment, EveryBugChangesWhatIsLearned) {
  const lab::Table& table = named(bugs().tables, "training");
  ASSERT_EQ(table.rows.size(), 1 + attention_bugs().size());
  for (std::size_t row = 1; row < table.rows.size(); ++row) {
    const auto& name = std::get<lab::Text>(table.rows[row][0]).english;
    // A finite fill changes rows alone that see no key, and no target is there.
    if (name == "padding-filled") continue;
    EXPECT_NE(number(table, row, "loss"), number(table, 0, "loss")) << name;
  }
}

std::set<std::string> caught_by(const lab::TestedAttention& attention) {
  std::set<std::string> keys;
  for (const lab::BugTest& test : lab::bug_tests()) {
    if (run_test(test, attention).caught) keys.insert(std::string(test.key));
  }
  return keys;
}

TEST(BugTests, RightAttentionPasses) {
  for (const std::uint64_t seed : {17U, 18U, 19U}) {
    EXPECT_TRUE(caught_by(lab::TestedAttention(std::nullopt, seed)).empty()) << seed;
  }
}

// Besides by the oracle and by `qkv check`.
TEST(BugTests, CaughtAsReasoned) {
  const std::map<AttentionBug, std::set<std::string>> expected = {
      // The future is seen, by queries of padding as well.
      {AttentionBug::CausalDropped, {"shorter", "later_tokens", "no_key", "by_hand"}},
      {AttentionBug::CausalOffByOne, {"shorter", "later_tokens", "no_key", "by_hand"}},
      {AttentionBug::WindowOffByOne, {"window"}},
      {AttentionBug::PaddingDropped, {"padding", "no_key"}},
      // −1e9 leaves nothing of a key beside one that is seen.
      {AttentionBug::PaddingFilled, {"no_key"}},
      {AttentionBug::PaddingOnQueryAxis, {"padding", "no_key"}},
      // No property speaks of the size of scores.
      {AttentionBug::ScaleMissing, {"by_hand"}},
      {AttentionBug::ScaleTwice, {"by_hand"}},
      {AttentionBug::KvHeadsTiled, {"groups"}},
  };
  for (auto [bug, keys] : expected) {
    keys.insert({"oracle", "check"});
    EXPECT_THAT(caught_by(lab::TestedAttention(bug, 17)), UnorderedElementsAreArray(keys))
        << name_of(bug);
  }
}

TEST(InjectedBug, SaysWhatWouldHaveCaughtIt) {
  lab::ExperimentOptions options = test::quick_options();
  options.inject = "S1";
  lab::Experiment experiment;
  lab::add_injected_bug(options, {{{"one", "一"}}, {{"other", "二"}}}, experiment);
  const lab::Table& table = named(experiment.tables, "injected_bug");
  EXPECT_EQ(table.rows.size(), lab::bug_tests().size());
  EXPECT_THAT(table.title.english, HasSubstr("S1"));
  const lab::Effect& effect = named(experiment.effects, "injected_bug_is_caught");
  EXPECT_TRUE(effect.holds);
  EXPECT_THAT(effect.found.english, HasSubstr("one row worked out by hand; output against"));
  EXPECT_THAT(effect.found.english, HasSubstr("Trained with it: one. Not trained with it: other"));
}

}  // namespace
}  // namespace qkv
