// One query by hand. With q = [1], scale 1, keys 0 and ln 3, values 4 and 8:
//   scores 0 and ln 3; minus the largest −ln 3 and 0; exponentials 1/3 and 1; their sum 4/3;
//   weights 1/4 and 3/4; context 1/4 · 4 + 3/4 · 8 = 7.
#include "lab/trace_walk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "lab/trace_source.h"
#include "lab/walk_text.h"

namespace qkv {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kPlenty = 1e9;
constexpr double kRounding = 1e-15;
constexpr const char* kLog3 = "0; 1.0986122886681098";

lab::Trace typed(const lab::TypedOptions& options, const lab::MaskOptions& mask = {}) {
  lab::TraceInput input = lab::trace_typed(options);
  lab::add_mask(input, mask);
  return lab::trace(input, kPlenty);
}

TEST(TraceWalk, MatchesThenAggregatesAsByHand) {
  const lab::Trace trace = typed({.query = "1", .key = kLog3, .value = "4; 8", .scale = 1});
  const lab::Walk walk = lab::walk(trace, {0, 0, 0});
  ASSERT_EQ(walk.keys.size(), 2U);
  EXPECT_DOUBLE_EQ(walk.keys[0].dot, 0);
  EXPECT_DOUBLE_EQ(walk.keys[1].dot, std::log(3));
  EXPECT_DOUBLE_EQ(*walk.largest, std::log(3));
  EXPECT_NEAR(walk.keys[0].exponential, 1.0 / 3, kRounding);
  EXPECT_DOUBLE_EQ(walk.keys[1].exponential, 1);
  EXPECT_NEAR(walk.sum, 4.0 / 3, kRounding);
  EXPECT_NEAR(walk.keys[0].weight, 0.25, kRounding);
  EXPECT_NEAR(walk.keys[1].weight, 0.75, kRounding);
  EXPECT_THAT(walk.keys[0].contribution, ElementsAre(DoubleNear(1, kRounding)));
  EXPECT_THAT(walk.keys[1].contribution, ElementsAre(DoubleNear(6, 1e-14)));
  EXPECT_THAT(walk.context, ElementsAre(DoubleNear(7, 1e-14)));
  EXPECT_NEAR(trace.weights(0, 0, 0, 1), 0.75, kRounding);  // and the oracle says so too
  EXPECT_NEAR(trace.context(0, 0, 0, 0), 7, 1e-14);
  EXPECT_NEAR(trace.log_sum_exp(0, 0, 0), std::log(4), kRounding);
}

TEST(TraceWalk, HiddenKeysGetNothing) {
  // Query 0 of three causal tokens sees only itself, whatever the rest says.
  const lab::Trace trace = typed({.input = "1 0; 0 1; 1 1"}, {.causal = true});
  const lab::Walk walk = lab::walk(trace, {0, 0, 0});
  EXPECT_TRUE(walk.keys[0].visible);
  EXPECT_FALSE(walk.keys[1].visible);
  EXPECT_EQ(walk.keys[0].weight, 1);
  EXPECT_EQ(walk.keys[2].weight, 0);
  EXPECT_THAT(walk.context, ElementsAre(1, 0));
}

TEST(TraceWalk, RowThatSeesNothingIsZero) {
  const lab::Trace trace = typed({.input = "1 0; 0 1"}, {.lengths = {0}});
  const lab::Walk walk = lab::walk(trace, {0, 0, 1});
  EXPECT_FALSE(walk.largest.has_value());
  EXPECT_EQ(walk.sum, 0);
  EXPECT_THAT(walk.context, ElementsAre(0, 0));
}

TEST(TraceWalk, AgreesWithTheOracleOnEveryRow) {
  lab::SizeOptions sizes;
  sizes.heads = 6;
  sizes.kv_heads = 2;
  sizes.model_width = 24;
  sizes.tokens = 7;
  lab::TraceInput input = lab::trace_sizes(sizes, kPlenty);
  lab::add_mask(input, {.prefix_lengths = {2}, .window = Window{3, 3, {}}, .lengths = {7, 5}});
  const lab::Trace trace = lab::trace(input, kPlenty);
  for (Index b = 0; b < 2; ++b) {
    for (Index h = 0; h < 6; ++h) {
      for (Index t = 0; t < 7; ++t) {
        const lab::Walk walk = lab::walk(trace, {b, h, t});
        for (Index s = 0; s < 7; ++s) {
          EXPECT_NEAR(walk.keys[static_cast<std::size_t>(s)].weight, trace.weights(b, h, t, s),
                      1e-14);
        }
        for (Index d = 0; d < 4; ++d) {
          EXPECT_NEAR(walk.context[static_cast<std::size_t>(d)], trace.context(b, h, t, d), 1e-13);
        }
      }
    }
  }
}

TEST(TraceWalk, TextShowsEveryStep) {
  const lab::Trace trace = typed({.input = "1 0; 0 1; 1 1"});
  std::string text;
  for (const std::string& line : lab::walk_text(lab::walk(trace, {0, 0, 2}), {})) {
    text += line + "\n";
  }
  // scores 1/√2, 1/√2, √2; exp(1/√2 − √2) = 0.4931; sum 1.986; weights 0.2483, 0.2483, 0.5035
  for (const char* piece :
       {"q2 = [1, 1]", "1. Match", "1·1 + 1·0 = 1", "0.7071", "1.414", "0.4931", "sum 1.986",
        "2. Aggregate", "0.2483 · [1, 0]", "0.5035", "= [0.7517, 0.7517]"}) {
    EXPECT_THAT(text, HasSubstr(piece));
  }
}

TEST(TraceWalk, RowsThatAreNotThereAreRefused) {
  const lab::Trace trace = typed({.input = "1 0; 0 1"});
  EXPECT_THAT(
      [&] {
        lab::walk(trace, {0, 0, 2});
      },
      ::testing::ThrowsMessage<std::invalid_argument>(
          "trace: --query: expected an index from 0 below 2, got 2"));
}

}  // namespace
}  // namespace qkv
