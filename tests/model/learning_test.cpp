// The tasks can be learned by the small model, and a bug shows in what it learns.
#include <gtest/gtest.h>

#include "model/training.h"

namespace qkv {
namespace {

Evaluation learn(const Task& task, Index layers, Index steps, const AttentionChange& change = {}) {
  DecoderOptions options;
  options.vocabulary = task.vocabulary;
  options.context = task.tokens;
  options.model_width = 32;
  options.layers = layers;
  options.changes = {change};
  Decoder<float> decoder(options, 17);
  TrainingOptions training;
  training.steps = steps;
  return train(decoder, task, training).held_out.back().evaluation;
}

Task joined_recall(bool padded) {
  RecallOptions options{.keys = 8, .values = 8, .pairs = 6, .queries = 4, .joined = true};
  if (padded) options.padding = RecallPadding{.fewest_pairs = 2, .misleading = true};
  return recall_task(options);
}

TEST(Learning, OneLayerRecallsJoinedPairs) {
  EXPECT_GT(learn(joined_recall(false), 1, 400).accuracy, 0.99);
}

TEST(Learning, PaddingThatMisleadsDoesNoHarmWhereItIsHiddenAndDoesWhereItIsNot) {
  EXPECT_GT(learn(joined_recall(true), 1, 400).accuracy, 0.99);
  EXPECT_LT(learn(joined_recall(true), 1, 400, {.bug = AttentionBug::PaddingDropped}).accuracy,
            0.9);
}

TEST(Learning, TwoLayersCopy) {
  EXPECT_GT(learn(copy_task({.symbols = 8, .length = 8}), 2, 300).accuracy, 0.99);
}

// A model that sees the next token has its target before it.
TEST(Learning, ALossBelowTheTextsOwnShowsThatTheFutureIsSeen) {
  const Task task = text_task(default_text(), 32);
  const double right = learn(task, 2, 300).loss;
  const double off_by_one = learn(task, 2, 300, {.bug = AttentionBug::CausalOffByOne}).loss;
  EXPECT_GT(right, 2.0);
  EXPECT_LT(off_by_one, 0.5 * right);
}

}  // namespace
}  // namespace qkv
