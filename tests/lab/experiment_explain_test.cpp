// Mutations that made a test below fail, all in lab/experiment_explain_tasks.cpp: a window as long as the way of the relay:
// IsWellFormedAndHolds and NoQueryOfTheRelaySeesItsAnswer; the token after the relevant one called relevant: those and
// AnswersComeFromTheRelevantToken; tokens swapped with the text's own: IsWellFormedAndHolds.
#include <gtest/gtest.h>

#include <algorithm>

#include "lab/experiment_explain_tasks.h"
#include "lab/experiment_runs.h"
#include "tests/lab/experiment_results.h"

namespace qkv {
namespace {

using test::named;
using test::number;

TEST(ExplainExperiment, IsWellFormedAndHolds) {
  const lab::Experiment experiment = lab::run_explain(test::quick_options());
  test::expect_well_formed(experiment);
  test::expect_effects(
      experiment,
      {"models_are_right", "raw_attention_succeeds", "raw_attention_fails", "interventions_find_it",
       "report_tells_them_apart", "relay_is_named", "deletion_tells_chance_from_skill",
       "rollout_rows_sum_to_one", "gap_shrinks", "heat_maps_show_the_mask"});
  const lab::Table& tasks = named(experiment.tables, "tasks");
  for (std::size_t row = 0; row < tasks.rows.size(); ++row) {
    EXPECT_GE(number(tasks, row, "accuracy"), 0.99);
    EXPECT_GE(number(tasks, row, "models"), 5);
  }
  // A query that does not see a token gives it no weight: it cannot rank first.
  const lab::Table& hits = named(experiment.tables, "hits");
  EXPECT_EQ(number(hits, 0, "relay"), 0);
  EXPECT_EQ(number(hits, 1, "relay"), 0);
  EXPECT_EQ(named(experiment.tables, "heads").columns.back().key, "verdict");
}

// The last token's answer is the symbol that the relevant token holds, or the one that followed it.
TEST(ExplainTasks, AnswersComeFromTheRelevantToken) {
  for (const lab::KnownTask& task : lab::known_tasks()) {
    Random random(5);
    const TokenBatch batch = task.setup.task.held_out(50, random);
    for (Index n = 0; n < 50; ++n) {
      const lab::KnownQuestion question = task.question(batch, n, random);
      const std::vector<Index>& tokens = question.text.tokens;
      const auto at = [&](Index t) { return tokens[static_cast<std::size_t>(t)]; };
      ASSERT_EQ(static_cast<Index>(question.text.names.size()), task.setup.task.vocabulary);
      ASSERT_FALSE(question.relevant.empty()) << task.key;
      for (const Index relevant : question.relevant) {
        EXPECT_EQ(std::ranges::count(question.candidates, relevant), 1) << task.key;
      }
      const Index source = question.relevant.back();
      if (task.key == "recall") {
        // Vocabulary: 8 keys, 8 values, then pairs.
        EXPECT_EQ((at(source) - 16) % 8, question.answer - 8);
        EXPECT_EQ((at(source) - 16) / 8, tokens.back());
        EXPECT_EQ(question.relevant.size(), 1U);
        for (const std::vector<Index>& other : question.text.alternatives) {
          for (std::size_t t = 0; t + 1 < other.size(); ++t) {
            EXPECT_NE((other[t] - 16) / 8, tokens.back());
          }
        }
      } else {
        EXPECT_EQ(at(source), question.answer) << task.key;
      }
      if (task.key == "induction") {
        EXPECT_EQ(at(question.relevant.front()), tokens.back());
        EXPECT_EQ(source, question.relevant.front() + 1);
      }
      if (task.key == "copy" || task.key == "relay") {
        EXPECT_EQ(source, static_cast<Index>(tokens.size()) - 1 - 8);
      }
    }
  }
}

TEST(ExplainTasks, NoQueryOfTheRelaySeesItsAnswer) {
  const std::vector<lab::KnownTask> tasks = lab::known_tasks();
  const auto relay = std::ranges::find(tasks, "relay", &lab::KnownTask::key);
  Random random(7);
  const TokenBatch batch = relay->setup.task.held_out(20, random);
  const lab::KnownModel untrained{std::make_shared<const Decoder<double>>(relay->setup.decoder, 1),
                                  0, 0};
  for (Index n = 0; n < 20; ++n) {
    const lab::KnownQuestion question = relay->question(batch, n, random);
    const explain::DecoderModel model = lab::asked(untrained, question);
    const Index last = model.sizes().tokens - 1;
    EXPECT_FALSE(model.may_see(last, question.relevant.front()));
    // But two steps lead there.
    bool reached = false;
    for (Index t = 0; t <= last; ++t) {
      reached = reached || (model.may_see(last, t) && model.may_see(t, question.relevant.front()));
    }
    EXPECT_TRUE(reached);
  }
}

}  // namespace
}  // namespace qkv
