// The text that comes with the program: the loss of PyTorch's training with the same initial weights and batches.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "model/training.h"
#include "tests/model/model_data.h"

namespace qkv {
namespace {

constexpr Index kTokens = 32;

/// The sequences of the text that begin at these bytes.
TokenBatch sequences_at(const std::string& text, std::span<const Index> starts) {
  const auto count = static_cast<Index>(starts.size());
  TokenBatch batch{.tokens = Tensor<Index, 2>({count, kTokens}),
                   .targets = Tensor<Index, 2>({count, kTokens})};
  for (Index b = 0; b < count; ++b) {
    const auto start = static_cast<std::size_t>(starts[static_cast<std::size_t>(b)]);
    for (std::size_t t = 0; t < kTokens; ++t) {
      batch.tokens(b, static_cast<Index>(t)) = text[start + t];
      batch.targets(b, static_cast<Index>(t)) = text[start + t + 1];
    }
  }
  return batch;
}

double mean_of_last(const std::vector<double>& losses, std::ptrdiff_t count) {
  return std::accumulate(losses.end() - count, losses.end(), 0.0) / static_cast<double>(count);
}

TEST(TextTraining, LossIsWithinTwoPercentOfPyTorchs) {
  const TensorFile file = cases::golden("text_training");
  DecoderOptions options;
  options.vocabulary = 128;
  options.context = kTokens;
  options.model_width = 32;
  Decoder<float> decoder(options, 1);
  cases::load(decoder, file, "initial.");
  const std::string text = default_text();
  const Tensor<Index, 2> starts = file.at("starts").to<Index, 2>("starts");
  const Tensor<Index, 1> held_out = file.at("held_out").to<Index, 1>("held_out");

  Index step = 0;
  const Task task{
      .name = "recorded",
      .vocabulary = 128,
      .tokens = kTokens,
      .training =
          [&](Index sequences, Random&) {
            return sequences_at(text, {&starts(step++, 0), static_cast<std::size_t>(sequences)});
          },
      .held_out = [&](Index, Random&) { return sequences_at(text, held_out.elements()); }};
  TrainingOptions training;
  training.steps = starts.shape(0);
  training.sequences = starts.shape(1);
  training.evaluation_batches = 1;
  const TrainingHistory history = train(decoder, task, training);

  const std::vector<double> expected = cases::numbers(file, "losses");
  ASSERT_EQ(history.loss.size(), expected.size());
  EXPECT_NEAR(history.loss.front(), expected.front(), 1e-4 * expected.front());
  const double last = mean_of_last(expected, 20);
  EXPECT_NEAR(mean_of_last(history.loss, 20), last, 0.02 * last);
  const double after = cases::numbers(file, "held_out_loss")[0];
  EXPECT_NEAR(history.held_out.back().evaluation.loss, after, 0.02 * after);
  EXPECT_LT(after, 0.6 * std::log(128.0));  // it has learned something
}

}  // namespace
}  // namespace qkv
