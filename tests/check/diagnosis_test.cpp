#include "check/diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "tests/check/small_dump.h"

namespace qkv::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Ids = std::vector<std::string>;

/// The classes of each cause.
std::vector<Ids> causes(const Diagnosis& diagnosis) {
  std::vector<Ids> causes;
  for (const Cause& cause : diagnosis.causes) causes.push_back(cause.ids);
  return causes;
}

const AttentionShape kSquare{2, 3, 3, 7, 7, 4, 5};
const AttentionShape kGrouped{2, 6, 2, 5, 9, 4, 3};

Dump padded_causal() {
  Dump dump = plain_dump(kSquare);
  dump.rules.causal = true;
  dump.rules.lengths = {7, 4};
  return dump;
}

double causal_score(const Dump& dump, const Place& at) {
  return at.s <= at.t && at.s < dump.rules.lengths[static_cast<std::size_t>(at.b)]
             ? dump.scale * product(dump, at)
             : kHidden;
}

TEST(Diagnosis, RightDumpHasNoCause) {
  Dump dump = padded_causal();
  attend(dump, [&](const Place& at) { return causal_score(dump, at); });
  EXPECT_THAT(diagnose(dump).causes, IsEmpty());
  EXPECT_THAT(challenge(dump).causes, IsEmpty());
}

TEST(Diagnosis, NamesAMissingScale) {
  Dump dump = plain_dump(kGrouped);
  attend(dump, [&](const Place& at) { return product(dump, at); });
  EXPECT_THAT(causes(diagnose(dump)), ElementsAre(Ids{"S1"}));
}

TEST(Diagnosis, FitsAScale) {
  Dump dump = plain_dump(kGrouped);
  attend(dump, [&](const Place& at) { return 0.37 * product(dump, at); });
  const Diagnosis diagnosis = diagnose(dump);
  ASSERT_THAT(causes(diagnosis), ElementsAre(Ids{"S3"}));
  EXPECT_NEAR(diagnosis.causes[0].parameters.at("scale"), 0.37, 1e-12);
}

TEST(Diagnosis, NamesModuloGroups) {
  Dump dump = plain_dump(kGrouped);
  Dump other = dump;
  const auto& shape = dump.shape;
  for (Index h = 0; h < shape.heads; ++h) {
    // A dump of one head at a time, with the key/value head that the wrong rule takes.
    Dump one = plain_dump(
        {shape.batch, 1, 1, shape.queries, shape.keys, shape.key_width, shape.value_width});
    one.scale = dump.scale;
    for (Index b = 0; b < shape.batch; ++b) {
      for (Index t = 0; t < shape.queries; ++t) {
        for (Index d = 0; d < shape.key_width; ++d) one.query(b, 0, t, d) = dump.query(b, h, t, d);
      }
      for (Index s = 0; s < shape.keys; ++s) {
        for (Index d = 0; d < shape.key_width; ++d) one.key(b, 0, s, d) = dump.key(b, h % 2, s, d);
        for (Index d = 0; d < shape.value_width; ++d)
          one.value(b, 0, s, d) = dump.value(b, h % 2, s, d);
      }
    }
    attend(one, [&](const Place& at) { return one.scale * product(one, at); });
    for (Index b = 0; b < shape.batch; ++b) {
      for (Index t = 0; t < shape.queries; ++t) {
        for (Index d = 0; d < shape.value_width; ++d)
          (*dump.context)(b, h, t, d) = (*one.context)(b, 0, t, d);
      }
    }
  }
  EXPECT_THAT(causes(diagnose(dump)), ElementsAre(Ids{"G1"}));
}

TEST(Diagnosis, ARuleThatIsIgnoredAndAFillThatDoesNothingAreOne) {
  Dump dump = padded_causal();
  dump.ran_in = DType::Float32;
  attend(dump, [&](const Place& at) {
    return at.s < dump.rules.lengths[static_cast<std::size_t>(at.b)]
               ? dump.scale * product(dump, at)
               : kHidden;
  });
  const Diagnosis diagnosis = diagnose(dump);
  EXPECT_THAT(causes(diagnosis), ElementsAre(Ids{"M7"}, Ids{"M4"}));
  EXPECT_FALSE(diagnosis.separation.empty());
}

TEST(Diagnosis, NamesPaddingOnTheQueryAxis) {
  Dump dump = padded_causal();
  attend(dump, [&](const Place& at) {
    return at.s <= at.t && at.t < dump.rules.lengths[static_cast<std::size_t>(at.b)]
               ? dump.scale * product(dump, at)
               : kHidden;
  });
  EXPECT_THAT(causes(diagnose(dump)), ElementsAre(Ids{"M2"}));
}

TEST(Diagnosis, NamesTheWrongCorner) {
  Dump dump = plain_dump(kGrouped);
  dump.rules.causal = true;
  dump.rules.corner = Corner::bottom_right();
  attend(dump,
         [&](const Place& at) { return at.s <= at.t ? dump.scale * product(dump, at) : kHidden; });
  EXPECT_THAT(causes(diagnose(dump)), ElementsAre(Ids{"M10"}));
}

TEST(Diagnosis, NamesATokenOfTheFuture) {
  Dump dump = plain_dump(kSquare);
  dump.rules.causal = true;
  attend(dump, [&](const Place& at) {
    return at.s <= at.t + 1 ? dump.scale * product(dump, at) : kHidden;
  });
  EXPECT_THAT(causes(diagnose(dump)), ElementsAre(Ids{"M8"}));
}

TEST(Diagnosis, FitsTheFill) {
  Dump dump = padded_causal();
  attend(dump, [&](const Place& at) {
    const double score = causal_score(dump, at);
    return score == kHidden ? -3.25 : score;
  });
  const Diagnosis diagnosis = diagnose(dump);
  ASSERT_THAT(causes(diagnosis), ElementsAre(Ids{"M5"}));
  EXPECT_NEAR(diagnosis.causes[0].parameters.at("fill"), -3.25, 1e-9);
}

TEST(Diagnosis, BaseTwoAndAScaleAreOneWithoutTheLogSumExp) {
  Dump dump = plain_dump(kGrouped);
  attend(dump, [&](const Place& at) { return std::numbers::ln2 * dump.scale * product(dump, at); });
  EXPECT_THAT(causes(diagnose(dump))[0], ElementsAre("N2"));
}

TEST(Diagnosis, NamesAPair) {
  Dump dump = padded_causal();
  attend(dump, [&](const Place& at) {
    return at.s < at.t && at.s < dump.rules.lengths[static_cast<std::size_t>(at.b)]
               ? product(dump, at)
               : kHidden;
  });
  EXPECT_THAT(causes(diagnose(dump)), ElementsAre(Ids{"M8", "S1"}));
}

TEST(Diagnosis, NamesAPolicyBesideTransposedWeights) {
  Dump dump = plain_dump(kSquare);
  dump.rules.causal = true;
  dump.rules.corner = Corner::at({-1});
  // Query 0 sees no key: it is meant to give 0, and weighs all keys alike.
  const auto weight = [&](const Place& at) {
    if (at.t == 0) return 1 / static_cast<double>(kSquare.keys);
    double sum = 0;
    for (Index s = 0; s < at.t; ++s) {
      sum += std::exp(dump.scale * product(dump, {at.b, at.h, at.t, s}));
    }
    return at.s < at.t ? std::exp(dump.scale * product(dump, at)) / sum : 0.0;
  };
  for (Index b = 0; b < kSquare.batch; ++b) {
    for (Index h = 0; h < kSquare.heads; ++h) {
      for (Index t = 0; t < kSquare.queries; ++t) {
        for (Index s = 0; s < kSquare.keys; ++s) {
          for (Index d = 0; d < kSquare.value_width; ++d) {
            (*dump.context)(b, h, t, d) += weight({b, h, s, t}) * dump.value(b, h, s, d);
          }
        }
      }
    }
  }
  EXPECT_THAT(causes(diagnose(dump)), ElementsAre(Ids{"M6", "X2"}));
}

TEST(Diagnosis, SaysWhatCannotBeShown) {
  Dump dump = padded_causal();
  attend(dump, [&](const Place& at) { return causal_score(dump, at); });
  Ids ids;
  for (const NotShown& not_shown : diagnose(dump).not_shown) ids.push_back(not_shown.id);
  EXPECT_THAT(ids, testing::IsSupersetOf({"M10", "M12", "G1", "R1", "Q1", "D1"}));
  EXPECT_THAT(ids, testing::Not(testing::Contains("M7")));
}

}  // namespace
}  // namespace qkv::test
