// The training loop: the same numbers for the same seed on any number of threads, what it reports, when it stops.
#include "model/training.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/model/model_data.h"

namespace qkv {
namespace {

DecoderOptions small(const Task& task) {
  DecoderOptions options;
  options.vocabulary = task.vocabulary;
  options.context = task.tokens;
  options.model_width = 32;
  options.layers = 2;
  return options;
}

TrainingOptions short_training() {
  TrainingOptions options;
  options.steps = 6;
  options.evaluate_every = 2;
  options.evaluation_batches = 1;
  return options;
}

struct Trained {
  TrainingHistory history;
  std::vector<float> parameters;
};

Trained train_with(const DecoderOptions& decoder_options, const Task& task,
                   const TrainingOptions& options) {
  Decoder<float> decoder(decoder_options, 3);
  TrainingHistory history = train(decoder, task, options);
  return {std::move(history), cases::flattened(decoder)};
}

bool same_bits(const Trained& a, const Trained& b) {
  return a.history.loss == b.history.loss && a.history.gradient_norm == b.history.gradient_norm &&
         a.parameters.size() == b.parameters.size() &&
         std::memcmp(a.parameters.data(), b.parameters.data(),
                     a.parameters.size() * sizeof(float)) == 0;
}

TEST(Training, TheSeedDeterminesEveryNumberOnAnyNumberOfThreads) {
  const Task task = text_task(default_text(), 48);
  std::vector<DecoderOptions> kinds{small(task), small(task)};
  kinds[1].changes = {AttentionChange{.matching = Matching::Additive}};
  for (const DecoderOptions& decoder : kinds) {
    TrainingOptions options = short_training();
    options.threads = 1;
    const Trained first = train_with(decoder, task, options);
    EXPECT_TRUE(same_bits(first, train_with(decoder, task, options)));
    for (const int threads : {2, 3}) {
      options.threads = threads;
      EXPECT_TRUE(same_bits(first, train_with(decoder, task, options))) << threads;
    }
    options.seed = 18;
    EXPECT_FALSE(same_bits(first, train_with(decoder, task, options)));
  }
}

TEST(Training, LeavesTheNumberOfThreadsAsItWas) {
  const Task task = copy_task({.symbols = 4, .length = 4});
  omp_set_num_threads(2);
  TrainingOptions options = short_training();
  options.threads = 1;
  train_with(small(task), task, options);
  EXPECT_EQ(omp_get_max_threads(), 2);
}

TEST(Training, ReportsEachStepAndKeepsItsHistory) {
  const Task task = copy_task({.symbols = 4, .length = 4});
  TrainingOptions options = short_training();
  std::vector<TrainingProgress> reports;
  options.progress = [&](const TrainingProgress& progress) {
    reports.push_back(progress);
    return true;
  };
  const TrainingHistory history = train_with(small(task), task, options).history;
  ASSERT_EQ(reports.size(), 6U);
  ASSERT_EQ(history.loss.size(), 6U);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(reports[i].step, static_cast<Index>(i) + 1);
    EXPECT_EQ(reports[i].steps, 6);
    EXPECT_EQ(reports[i].loss, history.loss[i]);
    EXPECT_EQ(reports[i].gradient_norm, history.gradient_norm[i]);
    EXPECT_EQ(reports[i].learning_rate, learning_rate(options.schedule, static_cast<Index>(i), 6));
    EXPECT_EQ(reports[i].held_out.has_value(), i % 2 == 1);
  }
  ASSERT_EQ(history.held_out.size(), 3U);
  EXPECT_EQ(history.held_out.back().step, 6);
  EXPECT_EQ(history.held_out.back().evaluation.loss, reports.back().held_out->loss);
  EXPECT_FALSE(history.stopped);
}

TEST(Training, StopsWhenToldTo) {
  const Task task = copy_task({.symbols = 4, .length = 4});
  TrainingOptions options = short_training();
  options.progress = [](const TrainingProgress& progress) { return progress.step < 3; };
  const TrainingHistory history = train_with(small(task), task, options).history;
  EXPECT_EQ(history.loss.size(), 3U);
  EXPECT_TRUE(history.stopped);
}

TEST(Training, StopsAtALossThatIsNoNumber) {
  const Task task = copy_task({.symbols = 4, .length = 4});
  Decoder<float> decoder(small(task), 3);
  decoder.update([](std::span<const NamedParameter<float>> parameters) {
    parameters[0].elements[0] = std::numeric_limits<float>::quiet_NaN();
    parameters[0].elements[40] = std::numeric_limits<float>::quiet_NaN();
  });
  const TrainingHistory history = train(decoder, task, short_training());
  EXPECT_EQ(history.loss.size(), 1U);
  EXPECT_TRUE(std::isnan(history.loss[0]));
  EXPECT_TRUE(history.stopped);
}

TEST(Training, BeforeItTheLossIsThatOfChance) {
  const Task task = text_task(default_text(), 32);
  const Decoder<float> decoder(small(task), 3);
  const Evaluation evaluation = evaluate(decoder, task, 16, 2);
  EXPECT_NEAR(evaluation.loss, std::log(256.0), 0.05);
  EXPECT_EQ(evaluation.targets, 2 * 16 * 32);
}

TEST(Training, EvaluationIsOverAllTargetsAndLeavesTheModelAlone) {
  const Task task = copy_task({.symbols = 4, .length = 4});
  const Decoder<float> decoder(small(task), 3);
  const Evaluation together = evaluate(decoder, task, 8, 3);
  const Evaluation again = evaluate(decoder, task, 8, 3);
  EXPECT_EQ(together.loss, again.loss);
  EXPECT_NE(together.loss, evaluate(decoder, task, 8, 3, 2).loss);
}

TEST(LearningRate, RisesInALineAndFallsAsHalfACosine) {
  const ScheduleOptions options{.peak = 1.0, .last_share = 0.1, .warmup = 4};
  EXPECT_DOUBLE_EQ(learning_rate(options, 0, 13), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(options, 3, 13), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(options, 4, 13), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(options, 8, 13), 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(options, 12, 13), 0.1);
}

TEST(AdamWTest, WithoutGradientsOnlyMatricesDecay) {
  const Task task = copy_task({.symbols = 4, .length = 4});
  Decoder<double> decoder(small(task), 3);
  cases::randomize(decoder, 4);
  const Decoder<double> before = decoder;
  Random random(1);
  const TokenBatch batch = task.training(2, random);
  const DecoderResult<double> result = decoder.forward(batch);
  const Tensor<double, 3> nothing(result.logits.shape());
  AdamWOptions options;
  options.weight_decay = 0.5;
  AdamW<double> adamw(decoder, options);
  EXPECT_EQ(adamw.step(decoder, decoder.backward(batch, result, nothing), 0.1), 0.0);
  const auto kept = before.parameters();
  const auto now = decoder.parameters();
  for (std::size_t p = 0; p < kept.size(); ++p) {
    const double factor = kept[p].shape.size() > 1 ? 0.95 : 1.0;
    for (std::size_t i = 0; i < kept[p].elements.size(); ++i) {
      ASSERT_DOUBLE_EQ(now[p].elements[i], factor * kept[p].elements[i]) << kept[p].name;
    }
  }
}

TEST(DecoderParametersTest, HeadCountDoesNotChangeTheirNumberAndTyingDoes) {
  const auto count = [](auto edit) {
    DecoderOptions options;
    edit(options);
    return Decoder<float>(options, 1).parameter_count();
  };
  // V·D + context·D + 2·(4·D² + 8·D² + 4D + D + 2·2·D) + 2·D at V = 256, context = D = 64.
  const Index all = 256 * 64 + 64 * 64 + 2 * (12 * 64 * 64 + 9 * 64) + 2 * 64;
  for (const Index heads : {1, 2, 4, 8, 16}) {
    EXPECT_EQ(count([&](DecoderOptions& o) { o.heads = heads; }), all) << heads;
  }
  for (const Tying tying : {Tying::QueryIsKey, Tying::KeyIsValue}) {
    EXPECT_EQ(count([&](DecoderOptions& o) { o.changes = {AttentionChange{.tying = tying}}; }),
              all - 2 * 64 * 64);
  }
}

TEST(DecoderParametersTest, TiedProjectionsStayEqual) {
  const Task task = copy_task({.symbols = 4, .length = 4});
  for (const Tying tying : {Tying::QueryIsKey, Tying::KeyIsValue}) {
    DecoderOptions options = small(task);
    options.changes = {AttentionChange{.tying = tying}};
    Decoder<float> decoder(options, 3);
    train(decoder, task, short_training());
    for (const auto& block : decoder.tensors().blocks) {
      const auto& p = block.attention.projections;
      const auto& first = tying == Tying::QueryIsKey ? p.query_weight : p.key_weight;
      const auto& second = tying == Tying::QueryIsKey ? p.key_weight : p.value_weight;
      EXPECT_TRUE(
          std::equal(first.elements().begin(), first.elements().end(), second.elements().begin()));
    }
  }
}

}  // namespace
}  // namespace qkv
