#include "lab/trace_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "lab/trace_source.h"

namespace qkv {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Json = nlohmann::json;

constexpr double kPlenty = 1e9;

TEST(TraceJson, HoldsTheNumbersOfTheTrace) {
  lab::TraceInput input = lab::trace_sizes({.batch = 3, .kv_heads = 2}, kPlenty);
  lab::add_mask(input, {.causal = true});
  const lab::Trace trace = lab::trace(input, kPlenty);
  const Json json = Json::parse(lab::trace_json(trace, {.sample = 2, .heads = {3, 1}}));

  EXPECT_EQ(json["sizes"]["kv_heads"], 2);
  EXPECT_EQ(json["heads"], (Json{3, 1}));
  EXPECT_EQ(json["shapes"].size(), 8U);
  EXPECT_EQ(json["shapes"][2]["strides"], (Json{80, 4, 16, 1}));
  EXPECT_EQ(json["view_after_transpose"]["view_strides"], nullptr);
  EXPECT_THAT(json["view_after_transpose"]["refusal"].get<std::string>(), HasSubstr("view_as"));
  EXPECT_EQ(json["mask"]["shape"], (Json{1, 1, 5, 5}));
  EXPECT_EQ(json["mask"]["stride_0_axes"], (Json{"batch", "heads"}));
  for (std::size_t i = 0; i < 2; ++i) {
    const std::size_t h = i == 0 ? 3 : 1;
    for (std::size_t t = 0; t < 5; ++t) {
      for (std::size_t s = 0; s < 5; ++s) {
        EXPECT_EQ(json["weights"][i][t][s].get<double>(), trace.weights(2, h, t, s));
        EXPECT_EQ(json["scores"][i][t][s].get<double>(), trace.scores(2, h, t, s));
        EXPECT_EQ(json["visible"][i][t][s].get<bool>(), s <= t);
      }
      for (std::size_t d = 0; d < 4; ++d) {
        EXPECT_EQ(json["context"][i][t][d].get<double>(), trace.context(2, h, t, d));
      }
      EXPECT_EQ(json["log_sum_exp"][i][t].get<double>(), trace.log_sum_exp(2, h, t));
    }
  }
  for (std::size_t d = 0; d < 16; ++d) {
    EXPECT_EQ(json["output"][4][d].get<double>(), (*trace.output)(2, 4, d));
  }
}

TEST(TraceJson, WhatIsNotFiniteIsAString) {
  lab::TraceInput input = lab::trace_sizes({.batch = 1}, kPlenty);
  lab::add_mask(input, {.lengths = {0}});
  const lab::Trace trace = lab::trace(input, kPlenty);
  const Json json = Json::parse(lab::trace_json(trace, {.query = 1}));
  EXPECT_EQ(json["log_sum_exp"][0][0], "-Infinity");
  EXPECT_EQ(json["query_walk"]["largest"], nullptr);
  EXPECT_EQ(json["query_walk"]["sum"], 0);
}

TEST(TraceJson, EmptyAndForeignTextParse) {
  lab::Trace trace = lab::trace(lab::trace_sizes({.batch = 0}, kPlenty), kPlenty);
  trace.source = "not UTF-8: \xff";
  const Json json = Json::parse(lab::trace_json(trace, {}));
  EXPECT_TRUE(json["weights"].empty());
  EXPECT_EQ(json["output"], nullptr);
}

TEST(TraceJson, ChoicesMustBeThere) {
  const lab::Trace trace = lab::trace(lab::trace_sizes({}, kPlenty), kPlenty);
  const auto choosing = [&](const lab::TraceChoice& choice) {
    return [&trace, choice] { lab::trace_json(trace, choice); };
  };
  EXPECT_THAT(choosing({.sample = 2}), ThrowsMessage<std::invalid_argument>(
                                           "trace: --sample: expected an index from 0 below 2, "
                                           "got 2"));
  EXPECT_THAT(choosing({.heads = {-1}}), ThrowsMessage<std::invalid_argument>(
                                             "trace: --head: expected an index from 0 below 4, "
                                             "got -1"));
}

}  // namespace
}  // namespace qkv
