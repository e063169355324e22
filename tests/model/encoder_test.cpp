// The encoder against PyTorch, from what make_bert_goldens.py recorded, and what edits and padding do to it.
#include "model/encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "model/elementwise.h"
#include "model/encoder_file.h"
#include "model/pooling.h"
#include "module/projection.h"
#include "tests/model/model_data.h"

namespace qkv {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr double kTolerance = 1e-10;

std::string folder() { return std::string(QKV_SOURCE_DIR) + "/tests/model/goldens/bert"; }

class EncoderTest : public testing::Test {
 protected:
  EncoderTest() : file(cases::golden("bert")), encoder(load_encoder<double>(folder())) {
    batch.tokens = file.at("tokens").to<Index, 2>("tokens");
    batch.keep = file.at("keep").to<bool, 2>("keep");
  }

  template <int Rank>
  Tensor<double, Rank> recorded(const std::string& name) const {
    return file.at(name).to<double, Rank>(name);
  }

  template <int Rank>
  void expect_recorded(const Tensor<double, Rank>& actual, const std::string& name) const {
    const auto expected = recorded<Rank>(name);
    ASSERT_EQ(actual.shape(), expected.shape()) << name;
    for (std::size_t i = 0; i < actual.elements().size(); ++i) {
      ASSERT_NEAR(actual.elements()[i], expected.elements()[i], kTolerance) << name << " " << i;
    }
  }

  /// That of the loss in make_bert_goldens.py.
  Tensor<double, 3> output_gradient(const EncoderResult<double>& result) const {
    const PooledTokens<double> pooled = pool(pooling, result.output, batch.keep);
    Tensor<double, 3> gradient = recorded<3>("of_output");
    add(pool_backward(pooling, batch.keep, pooled, recorded<2>("of_vectors"),
                      result.output.shape(1)),
        gradient);
    return gradient;
  }

  EmbeddedBatch<double> embedded() const { return {encoder.embed(batch.tokens), batch.keep}; }

  TensorFile file;
  Encoder<double> encoder;
  EncoderBatch batch;
  PoolingOptions pooling{.normalize = true};
};

TEST_F(EncoderTest, OutputWeightsAndVectorsAreThoseOfPyTorch) {
  const EncoderResult<double> result = encoder.forward(batch, ReturnWeights::Yes);
  expect_recorded(result.output, "output");
  expect_recorded(pool(pooling, result.output, batch.keep).vectors, "vectors");
  for (std::size_t i = 0; i < result.blocks.size(); ++i) {
    expect_recorded(*result.blocks[i].weights(), "weights." + std::to_string(i));
  }
}

TEST_F(EncoderTest, GradientsAreThoseOfPyTorch) {
  const EncoderResult<double> result = encoder.forward(batch);
  const EncoderGradients<double> gradients =
      encoder.backward(batch, result, output_gradient(result));
  expect_recorded(gradients.embedding, "gradient.embedding");
  for (std::size_t i = 0; i < gradients.attention_output.size(); ++i) {
    expect_recorded(gradients.attention_output[i],
                    "gradient.attention_output." + std::to_string(i));
  }
  const auto list = gradients.list(encoder.options());
  ASSERT_EQ(list.size(), encoder.parameters().size());
  for (const NamedParameter<const double>& gradient : list) {
    const std::vector<double> expected = cases::numbers(file, "gradient." + gradient.name);
    ASSERT_EQ(gradient.elements.size(), expected.size()) << gradient.name;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(gradient.elements[i], expected[i], kTolerance) << gradient.name << " " << i;
    }
  }
}

// dP = (dOut·Wo) split by head · Vᵀ: what attributions take from the gradients.
TEST_F(EncoderTest, GradientsOfTheAttentionWeightsFollow) {
  const EncoderResult<double> result = encoder.forward(batch, ReturnWeights::Yes);
  const EncoderGradients<double> gradients =
      encoder.backward(batch, result, output_gradient(result));
  const Index heads = encoder.options().heads;
  for (std::size_t i = 0; i < result.blocks.size(); ++i) {
    Tensor<double, 3> of_context(gradients.attention_output[i].shape());
    add_input_gradient<double>(gradients.attention_output[i].view(),
                               encoder.tensors().blocks[i].attention.projections.output_weight,
                               of_context);
    const auto context = split_heads(std::as_const(of_context).view(), heads);
    const auto value =
        split_heads(result.blocks[i].attention.module.value_projection.view(), heads);
    const auto [samples, count, tokens, width] = context.shape();
    Tensor<double, 4> of_weights({samples, count, tokens, tokens});
    for (Index b = 0; b < samples; ++b) {
      for (Index h = 0; h < count; ++h) {
        for (Index t = 0; t < tokens; ++t) {
          for (Index s = 0; s < tokens; ++s) {
            for (Index d = 0; d < width; ++d) {
              of_weights(b, h, t, s) += context(b, h, t, d) * value(b, h, s, d);
            }
          }
        }
      }
    }
    expect_recorded(of_weights, "gradient.weights." + std::to_string(i));
  }
}

TEST_F(EncoderTest, GivenEmbeddingsGiveTheSameBits) {
  const EncoderResult<double> result = encoder.forward(batch);
  const EncoderResult<double> given = encoder.forward(embedded());
  EXPECT_THAT(given.output.elements(), ElementsAreArray(result.output.elements()));
  const Tensor<double, 3> gradient = output_gradient(result);
  const EncoderGradients<double> of_tokens = encoder.backward(batch, result, gradient);
  const EncoderGradients<double> of_given = encoder.backward(embedded(), given, gradient);
  EXPECT_THAT(of_given.embedding.elements(), ElementsAreArray(of_tokens.embedding.elements()));
}

TEST_F(EncoderTest, EncodingGivesTheSameBitsAndZeroAtPadding) {
  const Tensor<double, 3> expected = encoder.forward(batch).output;
  const Tensor<double, 3> output = encoder.encode(batch);
  for (Index b = 0; b < batch.tokens.shape(0); ++b) {
    for (Index t = 0; t < batch.tokens.shape(1); ++t) {
      const bool kept = (*batch.keep)(b, t);
      for (Index d = 0; d < output.shape(2); ++d) {
        ASSERT_EQ(output(b, t, d), kept ? expected(b, t, d) : 0);
      }
    }
  }
  EncoderBatch whole = batch;
  whole.keep.reset();
  EXPECT_THAT(encoder.encode(whole).elements(),
              ElementsAreArray(encoder.forward(whole).output.elements()));
  EncoderBatch nothing = batch;
  std::ranges::fill(nothing.keep->elements(), false);
  EXPECT_THAT(encoder.encode(nothing).elements(), testing::Each(0));
}

TEST_F(EncoderTest, PaddingLeavesNoTraceInOtherTokens) {
  const Tensor<double, 3> before = encoder.forward(batch).output;
  EmbeddedBatch<double> garbage = embedded();
  for (Index b = 0; b < batch.tokens.shape(0); ++b) {
    for (Index t = 0; t < batch.tokens.shape(1); ++t) {
      if (!(*batch.keep)(b, t)) garbage.embedding(b, t, 0) = 1e6;
    }
  }
  const Tensor<double, 3> after = encoder.forward(garbage).output;
  for (Index b = 0; b < batch.tokens.shape(0); ++b) {
    for (Index t = 0; t < batch.tokens.shape(1); ++t) {
      if (!(*batch.keep)(b, t)) continue;
      for (Index d = 0; d < before.shape(2); ++d) ASSERT_EQ(after(b, t, d), before(b, t, d));
    }
  }
}

TEST_F(EncoderTest, AnEditThatChangesNothingChangesNoBit) {
  std::vector<std::pair<Index, BlockSite>> sites;
  const EncoderResult<double> edited =
      encoder.forward(embedded(), ReturnWeights::No,
                      [&](Index block, BlockSite site, const TensorView<double, 4>&) {
                        sites.emplace_back(block, site);
                      });
  EXPECT_THAT(edited.output.elements(), ElementsAreArray(encoder.forward(batch).output.elements()));
  std::vector<std::pair<Index, BlockSite>> expected;
  for (const Index block : {0, 1}) {
    for (const BlockSite site :
         {BlockSite::Value, BlockSite::Context, BlockSite::AttentionOutput,
          BlockSite::AttentionResidual, BlockSite::MlpOutput, BlockSite::MlpResidual}) {
      expected.emplace_back(block, site);
    }
  }
  EXPECT_EQ(sites, expected);
}

// A value that is zeroed takes weight·value·Wo from the attention's output, and leaves the weights.
TEST_F(EncoderTest, AValueThatIsZeroedTakesItsShareAway) {
  const Index sample = 0;
  const Index head = 1;
  const Index token = 2;
  const EncoderResult<double> whole = encoder.forward(batch, ReturnWeights::Yes);
  const EncoderResult<double> edited =
      encoder.forward(embedded(), ReturnWeights::Yes,
                      [&](Index block, BlockSite site, const TensorView<double, 4>& values) {
                        if (block != 0 || site != BlockSite::Value) return;
                        for (Index d = 0; d < values.shape(3); ++d)
                          values(sample, head, token, d) = 0;
                      });
  const BlockResult<double>& block = whole.blocks[0];
  const Tensor<double, 4>& weights = *block.weights();
  EXPECT_THAT(edited.blocks[0].weights()->elements(), ElementsAreArray(weights.elements()));
  const auto value =
      split_heads(block.attention.module.value_projection.view(), encoder.options().heads);
  const Tensor<double, 2>& out = encoder.tensors().blocks[0].attention.projections.output_weight;
  const Index width = value.shape(3);
  for (Index t = 0; t < batch.tokens.shape(1); ++t) {
    for (Index o = 0; o < encoder.options().model_width; ++o) {
      double expected = block.attention.module.output(sample, t, o);
      for (Index d = 0; d < width; ++d) {
        expected -= weights(sample, head, t, token) * value(sample, head, token, d) *
                    out(o, head * width + d);
      }
      EXPECT_NEAR(edited.blocks[0].attention.module.output(sample, t, o), expected, 1e-13);
    }
  }
}

// A context of its own a sample: head 1 of sample 0 alone is taken away.
TEST_F(EncoderTest, AnEditOfOneSampleLeavesTheOthers) {
  const EncoderResult<double> whole = encoder.forward(batch);
  const EncoderResult<double> edited =
      encoder.forward(embedded(), ReturnWeights::No,
                      [](Index block, BlockSite site, const TensorView<double, 4>& values) {
                        if (block != 1 || site != BlockSite::Context) return;
                        for (Index t = 0; t < values.shape(2); ++t) {
                          for (Index d = 0; d < values.shape(3); ++d) values(0, 1, t, d) = 0;
                        }
                      });
  const Index sample = whole.output.shape(1) * whole.output.shape(2);
  const auto rest = [&](const EncoderResult<double>& result) {
    return result.output.elements().subspan(static_cast<std::size_t>(sample));
  };
  EXPECT_THAT(rest(edited), ElementsAreArray(rest(whole)));
  EXPECT_NE(edited.output(0, 0, 0), whole.output(0, 0, 0));
}

TEST_F(EncoderTest, AnEditedResultHasNoGradients) {
  const EncoderResult<double> edited = encoder.forward(
      embedded(), ReturnWeights::No, [](Index, BlockSite, const TensorView<double, 4>&) {});
  EXPECT_THAT([&] { encoder.backward(embedded(), edited, edited.output); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("expected one without edits")));
}

TEST_F(EncoderTest, WhatDoesNotFitIsRefused) {
  const auto refuses = [](const auto& call, const char* message) {
    EXPECT_THAT(call, ThrowsMessage<std::invalid_argument>(HasSubstr(message)));
  };
  EncoderBatch wrong = batch;
  wrong.tokens(0, 0) = 13;
  refuses([&] { encoder.forward(wrong); }, "tokens: expected 0 to 12, got 13");
  wrong.tokens(0, 0) = -1;
  refuses([&] { encoder.encode(wrong); }, "tokens: expected 0 to 12, got -1");
  wrong.tokens = Tensor<Index, 2>({1, 8});
  wrong.keep.reset();
  refuses([&] { encoder.forward(wrong); }, "tokens: expected at most 7 a sequence, got 8");
  wrong = batch;
  wrong.keep = Tensor<bool, 2>({3, 5});
  refuses([&] { encoder.forward(wrong); }, "keep: expected [3, 6], got [3, 5]");
  refuses(
      [&] {
        encoder.forward(EmbeddedBatch<double>{Tensor<double, 3>({1, 2, 11})});
      },
      "embedding: expected 12 columns, got [1, 2, 11]");
  const EncoderResult<double> result = encoder.forward(batch);
  refuses(
      [&] {
        encoder.backward(batch, result, Tensor<double, 3>({3, 6, 11}));
      },
      "output_gradient: expected [3, 6, 12], got [3, 6, 11]");
  EncoderOptions options = encoder.options();
  options.heads = 5;
  refuses([&] { Encoder<double>(options, encoder.tensors()); },
          "heads: expected a divisor of 12, got 5");
  options = encoder.options();
  options.mlp_width = 21;
  refuses([&] { Encoder<double>(options, encoder.tensors()); },
          "encoder.layer.0.intermediate.dense.weight: expected [21, 12], got [20, 12]");
  options = encoder.options();
  options.layers = 3;
  refuses([&] { Encoder<double>(options, encoder.tensors()); }, "blocks: expected 3, got 2");
}

TEST_F(EncoderTest, Float32AgreesWithFloat64) {
  const Tensor<float, 3> output = load_encoder<float>(folder()).encode(batch);
  const Tensor<double, 3> expected = encoder.encode(batch);
  for (std::size_t i = 0; i < output.elements().size(); ++i) {
    EXPECT_NEAR(static_cast<double>(output.elements()[i]), expected.elements()[i], 1e-5);
  }
}

}  // namespace
}  // namespace qkv
