// Generated tokens: with a cache as without, to the last bit of the logits; greedy and drawn.
#include "model/generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>

#include "model/cached_decoder.h"
#include "tests/model/model_data.h"

namespace qkv {
namespace {

DecoderOptions small() {
  DecoderOptions options;
  options.vocabulary = 11;
  options.context = 24;
  options.model_width = 24;
  options.heads = 4;
  return options;
}

struct CacheCase {
  std::string name;
  DecoderOptions options;

  friend void PrintTo(const CacheCase& cache_case, std::ostream* stream) {
    *stream << cache_case.name;
  }
};

std::vector<CacheCase> cache_cases() {
  std::vector<CacheCase> cases;
  const auto add = [&](std::string name, auto edit) {
    DecoderOptions options = small();
    edit(options);
    cases.push_back({std::move(name), options});
  };
  add("Learned", [](DecoderOptions&) {});
  add("Rotary", [](DecoderOptions& o) { o.positions = PositionKind::Rotary; });
  add("RmsNorm", [](DecoderOptions& o) { o.norm = NormKind::RmsNorm; });
  add("NoMlp", [](DecoderOptions& o) { o.mlp_width = 0; });
  add("HeadOfItsOwn", [](DecoderOptions& o) { o.tied_head = false; });
  add("GroupedHeadsAndBiases", [](DecoderOptions& o) {
    o.kv_heads = 2;
    o.biases = ProjectionBiases::all();
  });
  add("Window", [](DecoderOptions& o) { o.window = 3; });
  add("Scale", [](DecoderOptions& o) { o.changes = {AttentionChange{.scale = 2.0}}; });
  add("ScaleMissing",
      [](DecoderOptions& o) { o.changes = {AttentionChange{.bug = AttentionBug::ScaleMissing}}; });
  add("Tying",
      [](DecoderOptions& o) { o.changes = {AttentionChange{.tying = Tying::KeyIsValue}}; });
  return cases;
}

class CachedDecoderTest : public testing::TestWithParam<CacheCase> {};

TEST_P(CachedDecoderTest, GivesTheBitsOfTheWholeForwardPass) {
  Decoder<float> decoder(GetParam().options, 2);
  cases::randomize(decoder, 3);
  const TokenBatch batch = cases::random_batch(decoder.options(), 1, 20, 4);
  const Tensor<float, 3> expected = decoder.forward(batch).logits;
  CachedDecoder<float> cached(decoder);
  Index read = 0;
  for (const Index count : {1, 7, 1, 1, 6, 4}) {
    const std::vector<float> logits =
        cached.read({&batch.tokens(0, read), static_cast<std::size_t>(count)});
    read += count;
    EXPECT_TRUE(std::equal(logits.begin(), logits.end(), &expected(0, read - 1, 0))) << read;
  }
  EXPECT_EQ(read, 20);
}

INSTANTIATE_TEST_SUITE_P(Cases, CachedDecoderTest, testing::ValuesIn(cache_cases()),
                         [](const auto& test) { return test.param.name; });

TEST(Generation, IsTheSameWithACacheAndWithout) {
  Decoder<float> decoder(small(), 2);
  cases::randomize(decoder, 3);
  const std::vector<Index> prompt{1, 2, 3};
  for (const std::optional<double> temperature : {std::optional<double>(), std::optional(0.8)}) {
    const auto with = generate<float>(decoder, prompt, {.tokens = 20, .temperature = temperature});
    const auto without = generate<float>(
        decoder, prompt, {.tokens = 20, .temperature = temperature, .cache = false});
    EXPECT_EQ(with.size(), 20U);
    EXPECT_EQ(with, without);
  }
}

TEST(Generation, WithoutACacheGoesPastTheContextOnItsLastTokens) {
  Decoder<float> decoder(small(), 2);
  cases::randomize(decoder, 3);
  const std::vector<Index> prompt{4};
  const auto tokens = generate<float>(decoder, prompt, {.tokens = 40, .cache = false});
  ASSERT_EQ(tokens.size(), 40U);
  // The last token follows from the 24 before it.
  const std::vector<Index> seen(tokens.end() - 25, tokens.end() - 1);
  EXPECT_THAT(generate<float>(decoder, seen, {.tokens = 1, .cache = false}),
              testing::ElementsAre(tokens.back()));
}

TEST(Generation, DrawsFromTheSoftmaxOfTheLogits) {
  Decoder<double> decoder(small(), 2);
  cases::randomize(decoder, 3);
  const std::vector<Index> prompt{5, 6};
  constexpr double kTemperature = 2.0;
  TokenBatch batch{.tokens = Tensor<Index, 2>({1, 2}), .targets = {}};
  std::copy(prompt.begin(), prompt.end(), batch.tokens.data());
  const Tensor<double, 3> logits = decoder.forward(batch).logits;
  std::vector<double> expected;
  double sum = 0;
  for (Index v = 0; v < 11; ++v) {
    expected.push_back(std::exp(logits(0, 1, v) / kTemperature));
    sum += expected.back();
  }
  constexpr int kDraws = 4000;
  std::vector<int> counts(11, 0);
  for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
    const auto tokens =
        generate<double>(decoder, prompt, {.tokens = 1, .temperature = kTemperature, .seed = seed});
    ++counts[static_cast<std::size_t>(tokens.at(0))];
  }
  for (std::size_t v = 0; v < 11; ++v) {
    const double p = expected[v] / sum;
    // Five standard deviations of a binomial count.
    EXPECT_NEAR(counts[v], kDraws * p, 5 * std::sqrt(kDraws * p * (1 - p)) + 1) << v;
  }
}

TEST(Generation, StopsWhenToldTo) {
  const Decoder<float> decoder(small(), 2);
  std::vector<Index> told;
  const auto tokens =
      generate<float>(decoder, std::vector<Index>{1}, {.tokens = 20, .progress = [&](Index token) {
                                                         told.push_back(token);
                                                         return told.size() < 4;
                                                       }});
  EXPECT_EQ(tokens, told);
  EXPECT_EQ(tokens.size(), 4U);
}

TEST(Generation, BytesAreTokens) {
  EXPECT_THAT(tokens_of("A\xff"), testing::ElementsAre(65, 255));
  EXPECT_EQ(text_of(std::vector<Index>{65, 255}), "A\xff");
}

}  // namespace
}  // namespace qkv
