// Every attribution and intervention against PyTorch's autograd, Captum, networkx and SciPy, on the same weights and text, from the
// values that make_explain_goldens.py recorded.
//
// Mutations that made a test below fail: values of the first kv head alone set to zero, a skip that stays where it is cut, a token's place
// counted in the text where others were removed (explain/variant_batch.cpp): Interventions; the weights' derivative from the first kv head
// alone (block_stack.cpp): Gradients; the first head's weights with every head's values (attention_attributions.cpp): ReadsWeights; left
// ends in place of midpoints (gradient_attributions.cpp): Captum; sums of scores that are not scaled (faith.cpp): Infidelity.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "explain/agreement.h"
#include "explain/attention_attributions.h"
#include "explain/faith.h"
#include "explain/gradient_attributions.h"
#include "tests/explain/explain_data.h"

namespace qkv {
namespace {

using explain::HeadPlace;
using explain::Part;
using explain::Variant;

constexpr double kTolerance = 1e-10;

void expect_near(std::span<const double> actual, const std::vector<double>& expected,
                 const std::string& name, double tolerance = kTolerance) {
  ASSERT_EQ(actual.size(), expected.size()) << name;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance) << name << " entry " << i;
  }
}

class ExplainTorchTest : public testing::TestWithParam<const char*> {
 protected:
  void expect(std::span<const double> actual, const std::string& name,
              double tolerance = kTolerance) const {
    expect_near(actual, recorded.numbers(name), name, tolerance);
  }

  const test::Recorded recorded = test::recorded(GetParam());
  const explain::DecoderModel model = recorded.model();
};

TEST_P(ExplainTorchTest, Text) {
  expect(model.text().embeddings.elements(), "embeddings");
  expect(model.text().baseline.elements(), "baseline");
  expect(std::vector{explain::plain_target(model)}, "target");
  const explain::DecoderModel difference(recorded.decoder, {.tokens = recorded.tokens},
                                         {.token = 4, .against = 7});
  expect(std::vector{explain::plain_target(difference)}, "difference");
}

TEST_P(ExplainTorchTest, Interventions) {
  std::vector<std::string> names;
  std::vector<Variant> variants;
  const auto add = [&](const std::string& name) -> explain::Intervention& {
    names.push_back("intervention." + name);
    return variants.emplace_back().intervention;
  };
  add("hidden").hidden_keys = {1, 3};
  add("hidden_first").hidden_keys = {0};
  add("hidden_layer") = {.hidden_keys = {2}, .layer = 1};
  add("zeroed").zeroed_values = {0, 4};
  add("zeroed_layer") = {.zeroed_values = {1}, .layer = 0};
  add("heads").heads = {{0, 1}, {1, 2}};
  add("attention").parts = {{0, Part::Attention}};
  add("attention_skip").parts = {{1, Part::AttentionSkip}};
  add("mlp").parts = {{1, Part::Mlp}};
  add("mlp_skip").parts = {{0, Part::MlpSkip}};
  add("layer").parts = {{0, Part::Attention}, {0, Part::Mlp}};
  add("many") = {
      .hidden_keys = {1}, .zeroed_values = {2, 3}, .heads = {{1, 0}}, .parts = {{0, Part::Mlp}}};
  add("removed").removed_tokens = {1, 4};
  add("removed_and_hidden") = {.removed_tokens = {1, 4}, .hidden_keys = {2}};
  const std::vector<double> targets = model.run(variants);
  ASSERT_EQ(targets.size(), variants.size());
  for (std::size_t i = 0; i < targets.size(); ++i) expect(std::vector{targets[i]}, names[i]);
}

TEST_P(ExplainTorchTest, Gradients) {
  const explain::Records records = model.record();
  const explain::Gradients gradients = explain::plain_gradients(model);
  expect(gradients.targets, "target");
  expect(gradients.embeddings.elements(), "gradient.embeddings");
  for (std::size_t i = 0; i < records.layers.size(); ++i) {
    const std::string layer = std::to_string(i);
    expect(records.layers[i].residual.elements(), "residual." + layer);
    expect(records.layers[i].weights.elements(), "weights." + layer);
    expect(gradients.weights[i].elements(), "gradient.weights." + layer);
  }
}

TEST_P(ExplainTorchTest, ReadsWeights) {
  const explain::Records records = model.record();
  const explain::ExplainedText& text = model.text();
  const explain::Gradients gradients = explain::plain_gradients(model);
  expect(explain::raw_attention(records, text), "raw");
  expect(explain::raw_attention(records, text, 1), "raw.1");
  const std::vector<double> weights = recorded.numbers("weights.1");
  const std::vector<double> last_row(weights.begin() + 1 * 36 + 5 * 6, weights.begin() + 2 * 36);
  expect_near(explain::raw_attention(records, text, HeadPlace{1, 1}), last_row, "head 1");
  expect(explain::attention_times_norm(records, text), "attention_times_norm");
  for (std::size_t i = 0; i < records.layers.size(); ++i) {
    const std::string layer = std::to_string(i);
    expect(explain::delivered_norms(records.layers[i]).elements(), "norms." + layer);
    expect(explain::delivered_norms(records.layers[i], 1).elements(), "norms." + layer + ".1");
    expect(explain::gradient_times_attention(records, gradients, static_cast<Index>(i)),
           "gradient_times_attention." + layer);
  }
  expect(explain::rollout(records).elements(), "rollout");
  expect(explain::gradient_attention_rollout(records, gradients, text),
         "gradient_attention_rollout");
  // Capacities are multiples of 2⁻⁴⁰, a few dozen of which are added.
  expect(explain::attention_flow(records, text), "flow", 64 * 0x1p-40);
}

TEST_P(ExplainTorchTest, Captum) {
  expect(explain::gradient_times_input(explain::plain_gradients(model), model.text()),
         "input_times_gradient");
  for (const Index steps : {7, 14, 28, 56}) {
    // Captum takes its steps in float32.
    expect(explain::integrated_gradients(model, steps).scores,
           "integrated_gradients." + std::to_string(steps), 1e-7);
  }
}

TEST_P(ExplainTorchTest, Occlusion) {
  for (const explain::Occlusion how : explain::kOcclusions) {
    if (!explain::can_take_away(model.text(), how)) continue;
    expect(explain::occlusion(model, how), "occlusion." + std::string(explain::key_of(how)));
  }
}

TEST_P(ExplainTorchTest, Infidelity) {
  const std::vector<double> flags = recorded.numbers("infidelity.sets");
  const std::vector<double> scores = recorded.numbers("integrated_gradients.28");
  explain::Perturbations sets;
  std::vector<Variant> variants(1);
  for (std::size_t first = 0; first < flags.size(); first += 6) {
    std::vector<Index>& set = sets.sets.emplace_back();
    for (std::size_t t = 0; t < 6; ++t) {
      if (flags[first + t] != 0) set.push_back(static_cast<Index>(t));
    }
    variants.push_back(explain::without(model, explain::Occlusion::ReplaceToken, set));
  }
  const std::vector<double> targets = model.run(variants);
  for (std::size_t i = 1; i < targets.size(); ++i) sets.falls.push_back(targets[0] - targets[i]);
  expect(std::vector{explain::infidelity(scores, sets).value}, "infidelity");
}

TEST_P(ExplainTorchTest, RankAgreement) {
  const std::vector<double> a = recorded.numbers("input_times_gradient");
  const std::vector<double> b = recorded.numbers("occlusion.replace_token");
  const std::vector<double> tied = recorded.numbers("tied");
  expect(std::vector{explain::spearman(a, b), explain::spearman(tied, b)}, "spearman");
  expect(std::vector{explain::kendall(a, b), explain::kendall(tied, b)}, "kendall");
}

INSTANTIATE_TEST_SUITE_P(Recorded, ExplainTorchTest, testing::Values("learned", "rotary"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace qkv
