// Identities of attributions: sums, orders of convergence, hand-computed models.
//
// Mutations that made a test below fail: the skip left out of the rollout (explain/attention_attributions.cpp): RolloutRowsSumToOne; left
// ends in place of midpoints (gradient_attributions.cpp): GapFallsWithTheSquareOfTheSteps; half of the skip's capacity
// (attention_flow.cpp): FlowThroughOneLayer.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "explain/attention_attributions.h"
#include "explain/attributions.h"
#include "tests/explain/explain_data.h"
#include "tests/explain/linear_model.h"

namespace qkv {
namespace {

TEST(Attributions, RolloutRowsSumToOne) {
  const explain::DecoderModel model = test::random_model(9, 21);
  const Tensor<double, 2> rollout = explain::rollout(model.record());
  for (Index t = 0; t < 9; ++t) {
    double sum = 0;
    for (Index s = 0; s < 9; ++s) {
      sum += rollout(t, s);
      if (s > t) {
        EXPECT_EQ(rollout(t, s), 0);
      }
    }
    EXPECT_NEAR(sum, 1, 1e-14) << t;
  }
}

// One layer: what can flow to a key is what the query's row gives it, half of it through the skip.
TEST(Attributions, FlowThroughOneLayer) {
  DecoderOptions options;
  options.layers = 1;
  const explain::DecoderModel model = test::random_model(6, 23, options);
  const explain::Records records = model.record();
  const Tensor<double, 2> mean = explain::mean_over_heads(records.layers[0].weights);
  const std::vector<double> flow = explain::attention_flow(records, model.text());
  for (Index s = 0; s < 6; ++s) {
    EXPECT_NEAR(flow[static_cast<std::size_t>(s)], 0.5 * mean(5, s) + (s == 5 ? 0.5 : 0), 0x1p-40);
  }
}

// The midpoint rule's error is Σ c_k/m^(2k): each doubling divides it by 4, up to terms of the next order.
TEST(Attributions, GapFallsWithTheSquareOfTheSteps) {
  const explain::DecoderModel model = test::random_model(6, 25);
  double before = explain::integrated_gradients(model, 256).gap;
  for (const Index steps : {512, 1024}) {
    const double gap = explain::integrated_gradients(model, steps).gap;
    EXPECT_NEAR(before / gap, 4, 0.05) << steps;
    before = gap;
  }
}

TEST(Attributions, StepsDoubleUntilTheGapIsSmall) {
  const explain::DecoderModel model = test::random_model(6, 25);
  const explain::IntegratedGradients enough =
      explain::complete_integrated_gradients(model, {.fewest_steps = 2, .gap = 1e-3});
  EXPECT_LE(enough.gap, 1e-3 * std::fabs(enough.difference));
  EXPECT_GT(explain::integrated_gradients(model, enough.steps / 2).gap,
            1e-3 * std::fabs(enough.difference));
  const explain::IntegratedGradients limited = explain::complete_integrated_gradients(
      model, {.fewest_steps = 2, .most_steps = 4, .gap = 1e-9});
  EXPECT_EQ(limited.steps, 4);
}

// On a linear model integrated gradients, gradient × input and replacement are all slope · embedding.
TEST(Attributions, AgreeOnALinearModel) {
  const test::LinearModel model({.slopes = {1, -2, 3}, .embeddings = {2, 0.5, 1}});
  const explain::Attributions all = explain::attributions(model);
  for (const char* key : {"integrated_gradients", "gradient_times_input", "replace_token"}) {
    const std::vector<double>& scores = explain::find(all.list, key).scores;
    ASSERT_EQ(scores.size(), 3U);
    EXPECT_NEAR(scores[0], 2, 1e-15) << key;
    EXPECT_NEAR(scores[1], -1, 1e-15) << key;
    EXPECT_NEAR(scores[2], 3, 1e-15) << key;
  }
  EXPECT_THROW((void)explain::find(all.list, "swap_token"), std::invalid_argument);
}

// Swapping takes the mean over the other texts.
TEST(Attributions, SwapsWithEveryAlternative) {
  const test::Recorded recorded = test::recorded("learned");
  const std::vector<Index> first = {0, 1, 2, 3, 4, 5};
  const std::vector<Index> second = {10, 9, 8, 7, 6, 5};
  const explain::DecoderModel model(recorded.decoder,
                                    {.tokens = recorded.tokens, .alternatives = {first, second}},
                                    recorded.target);
  const std::vector<double> scores = explain::occlusion(model, explain::Occlusion::SwapToken);
  const double plain = explain::plain_target(model);
  for (std::size_t t = 0; t < 6; ++t) {
    double mean = 0;
    for (const std::vector<Index>& other : {first, second}) {
      std::vector<Index> tokens = recorded.tokens;
      tokens[t] = other[t];
      const explain::DecoderModel swapped(recorded.decoder, {.tokens = tokens}, recorded.target);
      mean += 0.5 * (plain - explain::plain_target(swapped));
    }
    EXPECT_NEAR(scores[t], mean, 1e-13) << t;
  }
}

TEST(Attributions, StopWhereProgressSaysSo) {
  const explain::DecoderModel model = test::random_model(5, 27);
  EXPECT_THROW(
      (void)explain::attributions(model, {}, [](std::string_view, double) { return false; }),
      Interrupted);
}

}  // namespace
}  // namespace qkv
