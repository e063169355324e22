// Where heads look, of weights that are made for it.
//
// Mutations that made a test below fail: rows without a choice counted (explain/heads.cpp): RowsWithoutAChoiceDoNotCount; every key held
// to be one that the query may see: NamesTheLeak.
#include "explain/heads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "explain/report.h"
#include "tests/explain/explain_data.h"
#include "tests/explain/linear_model.h"

namespace qkv {
namespace {

using explain::HeadKind;

constexpr Index kTokens = 8;

template <class Weight>
explain::HeadProfile profile(Weight weight, bool causal = true, std::vector<bool> special = {}) {
  Tensor<double, 3> weights({1, kTokens, kTokens});
  for (Index t = 0; t < kTokens; ++t) {
    for (Index s = 0; s < kTokens; ++s) weights(0, t, s) = weight(t, s);
  }
  const test::LinearModel model({.slopes = std::vector<double>(kTokens, 1),
                                 .embeddings = std::vector<double>(kTokens, 1),
                                 .weights = weights,
                                 .special = std::move(special),
                                 .causal = causal});
  return explain::head_profiles(model, model.record()).front();
}

TEST(Heads, NamesFixedPlaces) {
  const auto at = [](Index offset) {
    return [offset](Index t, Index s) { return s == std::max<Index>(t + offset, 0) ? 1.0 : 0.0; };
  };
  EXPECT_EQ(profile(at(0)).kind, HeadKind::Self);
  EXPECT_EQ(profile(at(-1)).kind, HeadKind::Previous);
  const explain::HeadProfile back = profile(at(-3));
  EXPECT_EQ(back.kind, HeadKind::Offset);
  EXPECT_EQ(back.offset, -3);
  EXPECT_EQ(back.offset_share, 1);
  EXPECT_EQ(back.entropy, 0);
  EXPECT_NE(back.verdict.english.find("3 places back"), std::string::npos);
  const explain::HeadProfile first = profile([](Index, Index s) { return s == 0 ? 1.0 : 0.0; });
  EXPECT_EQ(first.kind, HeadKind::First);
  EXPECT_EQ(first.first, 1);
  const auto next = [](Index t, Index s) { return s == std::min(t + 1, kTokens - 1) ? 1.0 : 0.0; };
  EXPECT_EQ(profile(next, false).kind, HeadKind::Next);
}

TEST(Heads, TellsEvenFromContent) {
  const auto even = [](Index t, Index s) { return s <= t ? 1.0 / static_cast<double>(t + 1) : 0; };
  const explain::HeadProfile spread = profile(even);
  EXPECT_EQ(spread.kind, HeadKind::Even);
  EXPECT_NEAR(spread.entropy, 1, 1e-15);
  // A key that depends on the query in no regular way.
  const std::array<Index, kTokens> keys = {0, 1, 0, 3, 1, 4, 2, 5};
  const auto anywhere = [&](Index t, Index s) {
    return s == keys[static_cast<std::size_t>(t)] ? 1.0 : 0.0;
  };
  EXPECT_EQ(profile(anywhere).kind, HeadKind::Content);
}

TEST(Heads, NamesTheLeak) {
  const auto leak = [](Index t, Index s) {
    if (s == t) return 0.75;
    return s == t + 1 ? 0.25 : 0.0;
  };
  const explain::HeadProfile profile_of_leak = profile(leak);
  EXPECT_EQ(profile_of_leak.kind, HeadKind::MaskViolation);
  EXPECT_EQ(profile_of_leak.violation, 0.25);
  EXPECT_EQ(profile(leak, false).kind, HeadKind::Self);
}

TEST(Heads, CountsSpecialTokens) {
  std::vector<bool> special(kTokens, false);
  special.front() = special.back() = true;
  const auto ends = [](Index, Index s) { return s == 0 || s == kTokens - 1 ? 0.5 : 0.0; };
  const explain::HeadProfile profile_of_ends = profile(ends, false, special);
  EXPECT_EQ(profile_of_ends.kind, HeadKind::Special);
  EXPECT_EQ(profile_of_ends.special, 1);
}

// A causal row sees one key or two at first: these weights are no habit.
TEST(Heads, RowsWithoutAChoiceDoNotCount) {
  const auto weights = [](Index t, Index s) {
    if (t < 2) return s == t ? 1.0 : 0.0;
    return s == t - 2 ? 1.0 : 0.0;
  };
  const explain::HeadProfile profile_of_back = profile(weights);
  EXPECT_EQ(profile_of_back.self, 0);
  EXPECT_EQ(profile_of_back.offset, -2);
  EXPECT_EQ(profile_of_back.offset_share, 1);
}

TEST(Report, HoldsEverythingOfAText) {
  const explain::DecoderModel model = test::random_model(7, 41);
  double last = 0;
  const explain::Report report = explain::explain(model, {}, [&](std::string_view, double done) {
    EXPECT_GE(done, last);
    last = done;
    return true;
  });
  EXPECT_EQ(last, 1);
  EXPECT_EQ(report.target, explain::plain_target(model));
  EXPECT_EQ(report.candidates.size(), 6U);
  EXPECT_EQ(report.heads.size(), 4U);
  EXPECT_EQ(report.layers.size(), 2U);
  EXPECT_EQ(report.ablation.heads.shape(), (Extents<2>{2, 2}));
  ASSERT_FALSE(report.methods.empty());
  for (const explain::MethodReport& method : report.methods) {
    EXPECT_EQ(method.attribution.scores.size(), 7U) << method.attribution.key;
    EXPECT_EQ(method.sanity.size(), method.attribution.intervenes ? 0U : 2U);
    // Every order ends without any candidate.
    EXPECT_EQ(method.curves.deletion.target.back(), report.baseline) << method.attribution.key;
  }
  for (const Text& sentence : report.summary) {
    EXPECT_FALSE(sentence.english.empty() || sentence.chinese.empty());
  }
  EXPECT_THROW((void)explain::explain(model, {}, [](std::string_view, double) { return false; }),
               Interrupted);
}

// The heat map shows token 0 alone, and the target is token 2's.
TEST(Report, SaysThatTheHeatMapMisleads) {
  const test::LinearModel wrong({.slopes = {0, 0, 5}, .embeddings = {1, 1, 1}});
  const explain::Report report = explain::explain(wrong, {.sanity = {.seeds = 0}});
  EXPECT_TRUE(report.heat_map_misleads);
  const auto says = [&](const char* words) {
    return std::ranges::any_of(report.summary, [&](const Text& sentence) {
      return sentence.english.find(words) != std::string::npos;
    });
  };
  EXPECT_TRUE(says("The heat map misleads (raw attention, last layer): it points to \"a\" (0)"));
  EXPECT_TRUE(says("What matters is \"c\" (2)"));
  const test::LinearModel right({.slopes = {5, 0, 0}, .embeddings = {1, 1, 1}});
  EXPECT_FALSE(explain::explain(right, {.sanity = {.seeds = 0}}).heat_map_misleads);
}

}  // namespace
}  // namespace qkv
