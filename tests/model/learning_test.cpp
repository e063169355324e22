// The tasks can be learned by the small model, and a bug shows in what it learns.
#include <gtest/gtest.h>

#include "model/training.h"

namespace qkv {
namespace {

struct Setting {
  Index layers = 2;
  Index steps = 300;
  PositionKind positions = PositionKind::Learned;
  AttentionChange change = {};
};

Evaluation learn(const Task& task, const Setting& setting) {
  DecoderOptions options;
  options.vocabulary = task.vocabulary;
  options.context = task.tokens;
  options.model_width = 32;
  options.layers = setting.layers;
  options.positions = setting.positions;
  options.changes = {setting.change};
  Decoder<float> decoder(options, 17);
  TrainingOptions training;
  training.steps = setting.steps;
  return train(decoder, task, training).held_out.back().evaluation;
}

Task joined_recall(bool padded) {
  RecallOptions options{.keys = 8, .values = 8, .pairs = 6, .queries = 4};
  if (padded) options.padding = RecallPadding{.fewest_pairs = 2, .misleading = true};
  return recall_task(options);
}

TEST(Learning, OneLayerRecallsJoinedPairs) {
  EXPECT_GT(learn(joined_recall(false), {.layers = 1, .steps = 400}).accuracy, 0.99);
}

// With positions a model learns that padding is what comes first; without them nothing tells it from the pairs.
TEST(Learning, PaddingThatMisleadsDoesNoHarmWhereItIsHiddenAndDoesWhereItIsNot) {
  Setting setting{.layers = 1, .steps = 400, .positions = PositionKind::None};
  EXPECT_GT(learn(joined_recall(true), setting).accuracy, 0.99);
  setting.change.bug = AttentionBug::PaddingDropped;
  EXPECT_LT(learn(joined_recall(true), setting).accuracy, 0.9);
}

TEST(Learning, TwoLayersCopy) {
  EXPECT_GT(learn(copy_task({.symbols = 8, .length = 8}), {}).accuracy, 0.99);
}

// A model that sees the next token has its target before it.
TEST(Learning, ALossBelowTheTextsOwnShowsThatTheFutureIsSeen) {
  const Task task = text_task(default_text(), 32);
  const double right = learn(task, {}).loss;
  const double off_by_one = learn(task, {.change = {.bug = AttentionBug::CausalOffByOne}}).loss;
  EXPECT_GT(right, 2.0);
  EXPECT_LT(off_by_one, 0.5 * right);
}

}  // namespace
}  // namespace qkv
