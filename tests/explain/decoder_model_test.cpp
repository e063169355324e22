// What holds of every run of a decoder: bits, batches, what is linear, and what is refused.
//
// Mutations that made a test below fail: a token's place counted in the text where others were removed (explain/variant_batch.cpp):
// VariantsKeepTheirBitsInABatch; embeddings shuffled with the layers (decoder_model.cpp): ShufflesTheLastLayers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "explain/attention_attributions.h"
#include "explain/gradient_attributions.h"
#include "explain/occlusion.h"
#include "model/decoder_parts.h"
#include "tests/explain/explain_data.h"

namespace qkv {
namespace {

using explain::Intervention;
using explain::Part;
using explain::Variant;

DecoderOptions rotary() {
  DecoderOptions options;
  options.positions = PositionKind::Rotary;
  return options;
}

TEST(DecoderModel, PlainRunIsTheDecodersBitForBit) {
  const test::Recorded recorded = test::recorded("learned");
  TokenBatch batch{.tokens = Tensor<Index, 2>({1, 6}), .targets = Tensor<Index, 2>({1, 6})};
  std::ranges::copy(recorded.tokens, batch.tokens.data());
  const double logit = recorded.decoder->forward(batch).logits(0, 5, recorded.target.token);
  const explain::DecoderModel model = recorded.model();
  EXPECT_EQ(explain::plain_target(model), logit);
  // Nothing taken away, and the text's own embeddings given.
  std::vector<Variant> variants(2);
  variants[1].embeddings = model.text().embeddings;
  EXPECT_EQ(model.run(variants), (std::vector{logit, logit}));
}

TEST(DecoderModel, VariantsKeepTheirBitsInABatch) {
  for (const DecoderOptions& options : {DecoderOptions{}, rotary()}) {
    const explain::DecoderModel model = test::random_model(7, 3, options);
    const std::vector<Variant> variants = {
        {},
        {.intervention = {.removed_tokens = {0, 3}}},
        {.intervention = {.hidden_keys = {2}}},
        {.intervention = {.removed_tokens = {5}, .zeroed_values = {1, 6}}},
        {.intervention = {.removed_tokens = {1}, .hidden_keys = {1, 4}, .layer = 1}},
        {.intervention = {.heads = {{0, 1}}, .parts = {{1, Part::Mlp}}}}};
    const std::vector<double> together = model.run(variants);
    for (std::size_t i = 0; i < variants.size(); ++i) {
      EXPECT_EQ(model.run(std::span(variants).subspan(i, 1)).front(), together[i]) << i;
    }
  }
}

// A text without a token is that shorter text.
TEST(DecoderModel, RemovedTokensLeaveAShorterText) {
  const test::Recorded recorded = test::recorded("rotary");
  std::vector<Index> shorter = recorded.tokens;
  shorter.erase(shorter.begin() + 2);
  const explain::DecoderModel without(recorded.decoder, {.tokens = shorter}, recorded.target);
  const std::vector<Variant> removed = {{.intervention = {.removed_tokens = {2}}}};
  EXPECT_EQ(recorded.model().run(removed).front(), explain::plain_target(without));
}

// What is hidden from a layer is as far from it as what the causal rule hides: its key and value may be anything.
TEST(DecoderModel, HiddenTokenLeavesNoTrace) {
  const explain::DecoderModel model = test::random_model(6, 5);
  Variant hidden{.intervention = {.hidden_keys = {2}}};
  Variant changed = hidden;
  changed.embeddings = model.text().embeddings;
  for (Index d = 0; d < model.sizes().width; ++d) {
    (*changed.embeddings)(2, d) = d % 3 == 0 ? 1e3 : -1e3;
  }
  const std::vector<Variant> variants = {hidden, changed};
  const std::vector<double> targets = model.run(variants);
  EXPECT_EQ(targets[0], targets[1]);
}

// The attention's output is linear in the values: what two tokens deliver adds up, and other rows keep their bits.
TEST(VariantBatch, ZeroedValuesAddUp) {
  DecoderOptions options;
  options.kv_heads = 1;
  options.biases = ProjectionBiases::all();
  const test::RandomDecoder random = test::random_decoder(6, 7, options);
  const explain::DecoderModel model = random.model();
  const std::vector<Variant> variants = {{},
                                         {.intervention = {.zeroed_values = {1}}},
                                         {.intervention = {.zeroed_values = {4}}},
                                         {.intervention = {.zeroed_values = {1, 4}}}};
  const explain::VariantBatch batch(model, variants);
  Tensor<double, 3> x({4, 6, 16});
  for (Index n = 0; n < 4; ++n) {
    std::ranges::copy(model.text().embeddings.elements(), &x(n, 0, 0));
  }
  const BlockOptions block = block_options(random.decoder->options(), 0);
  const auto output = [&](const BlockEdit<double>& edit) {
    return run_block(block, random.decoder->tensors().blocks[0], x, std::nullopt, ReturnWeights::No,
                     edit)
        .second.attention.module.output;
  };
  const Tensor<double, 3> plain = output({});
  const Tensor<double, 3> edited = output(batch.edit(0));
  for (Index t = 0; t < 6; ++t) {
    for (Index d = 0; d < 16; ++d) {
      EXPECT_EQ(edited(0, t, d), plain(0, t, d));
      const double one = edited(0, t, d) - edited(1, t, d);
      const double other = edited(0, t, d) - edited(2, t, d);
      EXPECT_NEAR(edited(0, t, d) - edited(3, t, d), one + other, 1e-14);
      if (t < 1) {
        EXPECT_EQ(one, 0);
      }
    }
  }
  EXPECT_GT(std::abs(edited(0, 5, 0) - edited(1, 5, 0)), 1e-3);
}

// All keys of all layers hidden, or all values zero in a model without value biases: the context is 0 either way.
TEST(DecoderModel, NothingDeliveredIsNothingSeen) {
  const explain::DecoderModel model = test::random_model(5, 9);
  const std::vector<Index> all = {0, 1, 2, 3, 4};
  Intervention cut;
  for (Index i = 0; i < model.sizes().layers; ++i) cut.parts.push_back({i, Part::Attention});
  const std::vector<Variant> variants = {{.intervention = {.hidden_keys = all}},
                                         {.intervention = {.zeroed_values = all}},
                                         {.intervention = cut}};
  const std::vector<double> targets = model.run(variants);
  EXPECT_EQ(targets[0], targets[2]);
  EXPECT_NEAR(targets[1], targets[2], 1e-13);
}

TEST(DecoderModel, ShufflesTheLastLayers) {
  const explain::DecoderModel model = test::random_model(6, 13);
  const auto last = model.with_shuffled_layers(1, 1);
  const auto again = model.with_shuffled_layers(1, 1);
  const auto all = model.with_shuffled_layers(2, 1);
  const auto weights = [](const explain::ExplainedModel& one, std::size_t layer) {
    const explain::Records records = one.record();
    const auto elements = records.layers[layer].weights.elements();
    return std::vector<double>(elements.begin(), elements.end());
  };
  EXPECT_EQ(weights(*last, 0), weights(model, 0));
  EXPECT_NE(weights(*last, 1), weights(model, 1));
  EXPECT_EQ(weights(*again, 1), weights(*last, 1));
  EXPECT_NE(weights(*all, 0), weights(model, 0));
  EXPECT_TRUE(
      std::ranges::equal(all->text().embeddings.elements(), model.text().embeddings.elements()));
}

TEST(DecoderModel, RefusesWhatDoesNotFit) {
  const test::Recorded recorded = test::recorded("learned");
  const auto message = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "accepted";
  };
  const auto made = [&](explain::DecoderText text, explain::DecoderTarget target) {
    return message([&] { explain::DecoderModel(recorded.decoder, std::move(text), target); });
  };
  EXPECT_EQ(made({}, {}), "explain: text: expected 1 to 6 tokens, got 0");
  EXPECT_EQ(made({.tokens = std::vector<Index>(7)}, {}),
            "explain: text: expected 1 to 6 tokens, got 7");
  EXPECT_EQ(made({.tokens = {11}}, {}), "explain: text: expected 0 to 10, got 11");
  EXPECT_EQ(made({.tokens = {1}}, {.token = 11}),
            "explain: target.token: expected 0 to 10, got 11");
  EXPECT_EQ(made({.tokens = {1}}, {.token = 1, .against = -1}),
            "explain: target.against: expected 0 to 10, got -1");
  EXPECT_EQ(made({.tokens = {1}, .names = {"a", "b"}}, {}),
            "explain: names: expected none or 11, got 2");
  EXPECT_EQ(made({.tokens = {1}, .alternatives = {{1, 2}}}, {}),
            "explain: alternatives: expected 1 tokens, got 2");

  const explain::DecoderModel model = recorded.model();
  const auto run = [&](Variant variant) {
    return message([&] { (void)model.run(std::array{std::move(variant)}); });
  };
  EXPECT_EQ(run({.intervention = {.removed_tokens = {6}}}),
            "explain: removed_tokens: expected 0 to 5, got 6");
  EXPECT_EQ(run({.intervention = {.removed_tokens = {5}}}),
            "explain: removed_tokens: expected none that the target reads alone, got 5");
  EXPECT_EQ(run({.intervention = {.hidden_keys = {-1}}}),
            "explain: hidden_keys: expected 0 to 5, got -1");
  EXPECT_EQ(run({.intervention = {.layer = 2}}), "explain: layer: expected 0 to 1, got 2");
  EXPECT_EQ(run({.intervention = {.heads = {{0, 3}}}}),
            "explain: heads.head: expected 0 to 2, got 3");
  EXPECT_EQ(run({.embeddings = Tensor<double, 2>({5, 12})}),
            "explain: embeddings: expected [6, 12], got [5, 12]");
  EXPECT_EQ(message([&] { (void)model.with_shuffled_layers(3, 1); }),
            "explain: layers: expected 1 to 2, got 3");
  EXPECT_EQ(message([&] { (void)explain::integrated_gradients(model, 0); }),
            "integrated_gradients: steps: expected 1 or more, got 0");

  DecoderOptions broken = recorded.decoder->options();
  broken.changes = {{.bug = AttentionBug::MergedByView}};
  EXPECT_EQ(
      message([&] {
        explain::DecoderModel(std::make_shared<const Decoder<double>>(broken, 1), {.tokens = {1}},
                              {});
      }),
      "explain: model: expected attention that MultiHeadAttention computes and keys can be hidden "
      "from, got H2");
}

}  // namespace
}  // namespace qkv
