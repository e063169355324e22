// A small BERT of random weights as a model to explain: its runs against the sentence model's own vectors, its derivatives against
// finite differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "explain/encoder_model.h"
#include "model/encoder_file.h"

namespace qkv {
namespace {

using explain::EncoderModel;
using explain::Variant;

/// As many tokens as the encoder has embeddings of: the special ones, then w5, w6, ….
WordPiece tokenizer(Index size) {
  std::vector<std::string> vocabulary = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (auto i = static_cast<Index>(vocabulary.size()); i < size; ++i)
    vocabulary.push_back("w" + std::to_string(i));
  return {vocabulary, {}};
}

std::shared_ptr<const SentenceModel<double>> sentence_model(PoolingOptions pooling = {}) {
  Encoder<double> encoder =
      load_encoder<double>(std::string(QKV_SOURCE_DIR) + "/tests/model/goldens/bert");
  WordPiece words = tokenizer(encoder.options().vocabulary);
  const Index context = encoder.options().context;
  return std::make_shared<const SentenceModel<double>>(SentenceModel<double>{
      std::move(words), std::move(encoder), {.most_tokens = context, .pooling = pooling}});
}

const std::string kText = "w7 w9 w5";
const std::string kOther = "w6 w8";

double target(const EncoderModel& model, const Variant& variant = {}) {
  return model.run({&variant, 1}).front();
}

TEST(EncoderModel, TargetIsTheCosineOfTheModelsVectors) {
  for (const Pooling pooling : {Pooling::Mean, Pooling::First}) {
    const auto sentences = sentence_model({.pooling = pooling});
    const std::vector<std::string> texts = {kText, kOther};
    const Tensor<double, 2> vectors = sentences->embed(texts);
    double product = 0;
    double squares[2] = {0, 0};
    for (Index d = 0; d < vectors.shape(1); ++d) {
      product += vectors(0, d) * vectors(1, d);
      squares[0] += vectors(0, d) * vectors(0, d);
      squares[1] += vectors(1, d) * vectors(1, d);
    }
    const EncoderModel model(sentences, kText, {kOther});
    EXPECT_NEAR(target(model), product / std::sqrt(squares[0] * squares[1]), 1e-12);
    EXPECT_NEAR(std::accumulate(model.text().readout.begin(), model.text().readout.end(), 0.0), 1,
                1e-15);
  }
}

TEST(EncoderModel, GivenEmbeddingsAreTheTextsOwn) {
  const EncoderModel model(sentence_model(), kText, {kOther});
  EXPECT_EQ(model.text().tokens, (std::vector<std::string>{"[CLS]", "w7", "w9", "w5", "[SEP]"}));
  EXPECT_EQ(model.text().special, (std::vector<bool>{true, false, false, false, true}));
  EXPECT_EQ(target(model, {.embeddings = model.text().embeddings}), target(model));
  const EncoderModel masked(sentence_model(), "[MASK] [MASK] [MASK]", {kOther});
  EXPECT_NEAR(target(model, {.embeddings = model.text().baseline}), target(masked), 1e-14);
}

TEST(EncoderModel, RemovedTokensLeaveTheTextWithoutThem) {
  const EncoderModel model(sentence_model(), kText, {kOther});
  const EncoderModel shorter(sentence_model(), "w7 w5", {kOther});
  EXPECT_NEAR(target(model, {.intervention = {.removed_tokens = {2}}}), target(shorter), 1e-13);
  EXPECT_THROW(target(model, {.intervention = {.removed_tokens = {5}}}), std::invalid_argument);
}

TEST(EncoderModel, RunsInABatchAreThoseAlone) {
  const EncoderModel model(sentence_model(), kText, {kOther});
  const std::vector<Variant> variants = {{},
                                         {.intervention = {.removed_tokens = {1, 3}}},
                                         {.intervention = {.hidden_keys = {2}}},
                                         {.intervention = {.zeroed_values = {1}, .layer = 1}},
                                         {.intervention = {.heads = {{0, 1}}}},
                                         {.intervention = {.parts = {{1, explain::Part::Mlp}}}}};
  const std::vector<double> together = model.run(variants);
  for (std::size_t i = 0; i < variants.size(); ++i) {
    EXPECT_EQ(together[i], target(model, variants[i])) << i;
    if (i > 0) {
      EXPECT_NE(together[i], together[0]) << i;
    }
  }
}

TEST(EncoderModel, DerivativesAreThoseOfFiniteDifferences) {
  const EncoderModel model(sentence_model(), kText, {kOther});
  const Tensor<double, 2>& at = model.text().embeddings;
  Tensor<double, 3> batch({1, at.shape(0), at.shape(1)});
  std::ranges::copy(at.elements(), batch.data());
  const explain::Gradients gradients = model.differentiate(batch);
  EXPECT_NEAR(gradients.targets.front(), target(model), 1e-14);
  constexpr double kStep = 1e-5;
  for (std::size_t i = 0; i < at.elements().size(); i += 7) {
    const auto moved = [&](double step) {
      Tensor<double, 2> embeddings = at;
      embeddings.elements()[i] += step;
      return target(model, {.embeddings = std::move(embeddings)});
    };
    EXPECT_NEAR(gradients.embeddings.elements()[i], (moved(kStep) - moved(-kStep)) / (2 * kStep),
                1e-8)
        << i;
  }
}

// Of what a norm reads it would be 0, and gradient × input nothing but rounding.
TEST(EncoderModel, LengthOfAnEmbeddingCounts) {
  const EncoderModel model(sentence_model(), kText, {kOther});
  const Tensor<double, 2>& at = model.text().embeddings;
  Tensor<double, 3> batch({1, at.shape(0), at.shape(1)});
  std::ranges::copy(at.elements(), batch.data());
  const explain::Gradients gradients = model.differentiate(batch);
  for (Index t = 0; t < at.shape(0); ++t) {
    double along = 0;
    for (Index d = 0; d < at.shape(1); ++d) along += at(t, d) * gradients.embeddings(0, t, d);
    EXPECT_GT(std::fabs(along), 1e-6) << t;
  }
}

TEST(EncoderModel, RecordsHoldEveryLayer) {
  const EncoderModel model(sentence_model(), kText, {kOther});
  const explain::Records records = model.record();
  ASSERT_EQ(static_cast<Index>(records.layers.size()), model.sizes().layers);
  for (const explain::LayerRecord& layer : records.layers) {
    for (Index h = 0; h < model.sizes().heads; ++h) {
      for (Index t = 0; t < model.sizes().tokens; ++t) {
        double sum = 0;
        for (Index s = 0; s < model.sizes().tokens; ++s) sum += layer.weights(h, t, s);
        EXPECT_NEAR(sum, 1, 1e-14);
      }
    }
  }
}

TEST(EncoderModel, ShuffledWeightsGiveAnotherTarget) {
  const EncoderModel model(sentence_model(), kText, {kOther});
  EXPECT_NE(target(model), model.with_shuffled_layers(1, 3)->run(std::vector<Variant>(1)).front());
  EXPECT_EQ(model.with_shuffled_layers(1, 3)->run(std::vector<Variant>(1)),
            model.with_shuffled_layers(1, 3)->run(std::vector<Variant>(1)));
  EXPECT_THROW(model.with_shuffled_layers(9, 3), std::invalid_argument);
}

TEST(EncoderModel, NearerToOneTextThanToAnotherIsADifferenceOfCosines) {
  const auto sentences = sentence_model();
  const std::string third = "w9 w9 w7";
  const EncoderModel one(sentences, kText, {kOther});
  const EncoderModel other(sentences, kText, {third});
  const EncoderModel both(sentences, kText, {kOther, third});
  EXPECT_NEAR(target(both), target(one) - target(other), 1e-14);
  EXPECT_EQ(both.text().target.english,
            "similarity (cosine) to \"w6 w8\" minus that to \"w9 w9 w7\"");
  const std::vector<double> near =
      explain::similarities(*sentences, kText, std::vector<std::string>{kOther, third, kText});
  EXPECT_NEAR(near[0], target(one), 1e-14);
  EXPECT_NEAR(near[1], target(other), 1e-14);
  EXPECT_NEAR(near[2], 1, 1e-14);
}

TEST(EncoderModel, TextsThatAreEmptyOrTooLongAreRefused) {
  EXPECT_THROW(EncoderModel(sentence_model(), " ", {kOther}), std::invalid_argument);
  std::string words;
  for (int i = 0; i < 1000; ++i) words += "w7 ";
  EXPECT_THROW(EncoderModel(sentence_model(), kText, {words}), std::invalid_argument);
}

}  // namespace
}  // namespace qkv
