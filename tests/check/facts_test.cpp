#include "check/facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "check/diagnosis.h"
#include "tests/check/small_dump.h"

namespace qkv::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

const AttentionShape kShape{2, 4, 2, 9, 40, 4, 6};

Dump right_dump() {
  Dump dump = plain_dump(kShape);
  attend(dump, [&](const Place& at) { return dump.scale * product(dump, at); });
  return dump;
}

/// Of a dump that no class of the catalogue explains.
std::vector<std::string> facts(const Dump& dump) {
  DiagnoseOptions options;
  options.pairs = false;
  const Diagnosis diagnosis = diagnose(dump, options);
  EXPECT_TRUE(diagnosis.causes.empty());
  return diagnosis.facts;
}

template <class Change>
void for_each_row(Dump& dump, Change change) {
  for (Index b = 0; b < dump.shape.batch; ++b) {
    for (Index h = 0; h < dump.shape.heads; ++h) {
      for (Index t = 0; t < dump.shape.queries; ++t) change(b, h, t);
    }
  }
}

TEST(Facts, KeysThatContributeNothing) {
  Dump dump = plain_dump(kShape);
  attend(dump, [&](const Place& at) {
    return at.s >= 16 && at.s < 24 ? kHidden : dump.scale * product(dump, at);
  });
  EXPECT_THAT(facts(dump), Contains("every wrong row is what comes out where keys 16–23 count "
                                    "for nothing"));
}

TEST(Facts, ACausalRuleThatTheDumpDoesNotName) {
  for (const bool bottom_right : {false, true}) {
    Dump dump = plain_dump(kShape);
    const Index offset = bottom_right ? kShape.keys - kShape.queries : 0;
    attend(dump, [&](const Place& at) {
      return at.s > at.t + offset ? kHidden : dump.scale * product(dump, at);
    });
    EXPECT_THAT(facts(dump),
                Contains(std::string("a causal rule that the dump does not name gives every row: "
                                     "if it is meant, add causal: ") +
                         (bottom_right ? "bottom-right" : "top-left") + " to the metadata"));
  }
}

TEST(Facts, KeysThatCountTwiceInOneHead) {
  Dump dump = plain_dump(kShape);
  attend(dump, [&](const Place& at) {
    const bool twice = at.b == 1 && at.h == 2 && at.s >= 8 && at.s < 11;
    return dump.scale * product(dump, at) + (twice ? std::log(2.0) : 0.0);
  });
  const auto found = facts(dump);
  EXPECT_THAT(found, Contains("every wrong row is what comes out where keys 8–10 count twice"));
  EXPECT_THAT(found, Contains("9 of 72 rows are wrong"));
  EXPECT_THAT(found, Contains("sample 0 is right"));
  EXPECT_THAT(found, Contains("heads 0–1, 3 are right"));
}

TEST(Facts, OnlySomeKeysContribute) {
  Dump dump = plain_dump(kShape);
  attend(dump, [&](const Place& at) {
    return at.s >= 5 && at.s < 33 ? dump.scale * product(dump, at) : kHidden;
  });
  EXPECT_THAT(facts(dump),
              Contains("every wrong row is what comes out where only keys 5–32 count"));
}

TEST(Facts, HeadOfZeros) {
  Dump dump = right_dump();
  for_each_row(dump, [&](Index b, Index h, Index t) {
    for (Index d = 0; d < 6 && h == 2; ++d) (*dump.context)(b, h, t, d) = 0;
  });
  EXPECT_THAT(facts(dump), Contains("every wrong row is 0"));
}

TEST(Facts, RowsOfTheQueryAfter) {
  Dump dump = right_dump();
  const auto right = *dump.context;
  for_each_row(dump, [&](Index b, Index h, Index t) {
    for (Index d = 0; d < 6; ++d) (*dump.context)(b, h, t, d) = right(b, h, (t + 1) % 9, d);
  });
  EXPECT_THAT(facts(dump), Contains("every wrong row holds what was meant for row t + 1"));
}

TEST(Facts, RowsOfAnotherHead) {
  Dump dump = right_dump();
  const auto right = *dump.context;
  for_each_row(dump, [&](Index b, Index h, Index t) {
    for (Index d = 0; d < 6 && b == 1 && h == 3; ++d) {
      (*dump.context)(b, h, t, d) = right(b, 1, t, d);
    }
  });
  EXPECT_THAT(facts(dump), Contains("every wrong row holds what was meant for head 1"));
}

TEST(Facts, FactorsByHead) {
  Dump dump = right_dump();
  for_each_row(dump, [&](Index b, Index h, Index t) {
    const double factor = h == 0 ? 0.5 : h == 3 ? 0.85 + 0.01 * static_cast<double>(t) : 1;
    for (Index d = 0; d < 6; ++d) (*dump.context)(b, h, t, d) *= factor;
  });
  const auto found = facts(dump);
  EXPECT_THAT(found,
              Contains("every sample, head 0 of 4, every row: each wrong row holds 0.5 times "
                       "what was meant"));
  EXPECT_THAT(found, Contains("every sample, head 3 of 4, every row: each wrong row is what was "
                              "meant times a factor of its own, 0.85 to 0.93, as if its weights "
                              "summed to that"));
}

TEST(Facts, RowsThatAreNotNumbersAndRowsThatRepeat) {
  Dump dump = right_dump();
  const auto right = *dump.context;
  for_each_row(dump, [&](Index b, Index h, Index t) {
    for (Index d = 0; d < 6 && b == 0; ++d) {
      if (h == 1 && t >= 5) (*dump.context)(b, h, t, d) = std::nan("");
      if (h == 3 && t >= 5) (*dump.context)(b, h, t, d) = right(b, h, 4, d);
    }
  });
  const auto found = facts(dump);
  EXPECT_THAT(found, Contains("sample 0 of 2, head 1 of 4, rows 5–8 of 9: each wrong row is NaN"));
  EXPECT_THAT(found, Contains("sample 0 of 2, head 3 of 4, rows 5–8 of 9: each wrong row holds the "
                              "same numbers as the other wrong rows of its sample and head"));
  EXPECT_THAT(found, Contains("the first wrong row is 5"));
  EXPECT_THAT(found, Contains("rows 0–4 are right"));
}

TEST(Facts, NothingIsSaidOfNoise) {
  Dump dump = right_dump();
  const auto noise = normal<4>(dump.context->shape(), 9);
  for (std::size_t i = 0; i < noise.elements().size(); ++i) {
    dump.context->elements()[i] += 0.3 * noise.elements()[i];
  }
  EXPECT_THAT(facts(dump), testing::ElementsAre("every row is wrong"));
}

TEST(Facts, RecordedWeightsTellWhereItWentWrong) {
  Dump dump = plain_dump(kShape);
  attend(dump, [&](const Place& at) {
    return at.s >= 16 && at.s < 24 ? kHidden : dump.scale * product(dump, at);
  });
  dump.weights = Tensor<double, 4>({2, 4, 9, 40});
  for_each_row(dump, [&](Index b, Index h, Index t) {
    double sum = 0;
    for (Index s = 0; s < 40; ++s) {
      const double weight = std::exp(dump.scale * product(dump, {b, h, t, s}));
      (*dump.weights)(b, h, t, s) = s >= 16 && s < 24 ? 0 : weight;
      sum += (*dump.weights)(b, h, t, s);
    }
    for (Index s = 0; s < 40; ++s) (*dump.weights)(b, h, t, s) /= sum;
  });
  const auto found = facts(dump);
  EXPECT_THAT(found, Contains("out is what the recorded weights make of v: what is wrong comes "
                              "before"));
  EXPECT_THAT(found, Contains("the recorded weights of keys 16–23 are 0 in every wrong row, also "
                              "where they are seen"));
}

TEST(Facts, SecondRun) {
  Dump dump = right_dump();
  dump.second_context = dump.context;
  (*dump.context)(1, 2, 3, 4) += 0.1;
  EXPECT_THAT(facts(dump), Contains("a second run on the same inputs gave other bits in 1 of 72 "
                                    "rows"));
}

}  // namespace
}  // namespace qkv::test
