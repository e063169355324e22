#include "check/remarks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "check/diagnosis.h"
#include "tests/check/small_dump.h"

namespace qkv::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const AttentionShape kShape{2, 2, 2, 5, 5, 4, 3};

std::vector<std::string> remarks(const Dump& dump) { return challenge(dump).remarks; }

Dump padded_dump() {
  Dump dump = plain_dump(kShape);
  dump.rules.lengths = {5, 3};
  return dump;
}

double padded_score(const Dump& dump, const Place& at) {
  return at.s < dump.rules.lengths[static_cast<std::size_t>(at.b)] ? dump.scale * product(dump, at)
                                                                   : kHidden;
}

/// Scores of every pair, hidden or not, and weights that are 0 where hidden, over their sum.
void record(Dump& dump, const std::function<double(const Place&)>& score) {
  dump.scores = Tensor<double, 4>({2, 2, 5, 5});
  dump.weights = Tensor<double, 4>({2, 2, 5, 5});
  for (Index row = 0; row < 20; ++row) {
    const Place at{row / 10, row / 5 % 2, row % 5, 0};
    double sum = 0;
    for (Index s = 0; s < 5; ++s) {
      const Place place{at.b, at.h, at.t, s};
      (*dump.scores)(at.b, at.h, at.t, s) = score(place);
      sum += std::exp(padded_score(dump, place));
    }
    for (Index s = 0; s < 5; ++s) {
      (*dump.weights)(at.b, at.h, at.t, s) =
          std::exp(padded_score(dump, {at.b, at.h, at.t, s})) / sum;
    }
  }
}

TEST(Remarks, NothingOddNothingSaid) {
  Dump dump = padded_dump();
  attend(dump, [&](const Place& at) { return padded_score(dump, at); });
  record(dump, [&](const Place& at) { return padded_score(dump, at); });
  EXPECT_THAT(remarks(dump), IsEmpty());
}

TEST(Remarks, MaskAfterTheSoftmaxRenormalised) {
  Dump dump = padded_dump();
  attend(dump, [&](const Place& at) { return padded_score(dump, at); });
  record(dump, [&](const Place& at) { return dump.scale * product(dump, at); });
  EXPECT_THAT(remarks(dump), ElementsAre(HasSubstr("20 hidden pairs are ordinary numbers")));
  // Not where they are not.
  for (double& weight : dump.weights->elements()) weight *= 0.9;
  EXPECT_THAT(remarks(dump), IsEmpty());
}

TEST(Remarks, FiniteFillThatIsLowEnough) {
  Dump dump = padded_dump();
  attend(dump, [&](const Place& at) { return padded_score(dump, at); });
  record(dump, [&](const Place& at) { return std::max(padded_score(dump, at), -1e9); });
  EXPECT_THAT(remarks(dump), ElementsAre(HasSubstr("finite scores, -1e+09 at most")));
}

TEST(Remarks, ScoresShiftedByRow) {
  Dump dump = padded_dump();
  attend(dump, [&](const Place& at) { return padded_score(dump, at); });
  record(dump, [&](const Place& at) { return padded_score(dump, at) + static_cast<double>(at.t); });
  EXPECT_THAT(remarks(dump),
              ElementsAre(HasSubstr("of 16 rows differ from those meant by one number a row, up to "
                                    "4")));
}

TEST(Remarks, RowsThatNobodyReads) {
  Dump dump = padded_dump();
  attend(dump, [&](const Place& at) { return padded_score(dump, at); });
  dump.read_rows = Tensor<bool, 2>({2, 5});
  for (Index t = 0; t < 5; ++t) {
    (*dump.read_rows)(0, t) = true;
    (*dump.read_rows)(1, t) = t < 3;
  }
  EXPECT_THAT(remarks(dump), IsEmpty());
  (*dump.context)(1, 0, 3, 0) = std::numeric_limits<double>::quiet_NaN();
  (*dump.context)(1, 1, 4, 2) += 1;
  EXPECT_THAT(remarks(dump),
              ElementsAre("Of 4 rows that read_rows says nobody reads, 2 differ from the oracle, 1 "
                          "of them not finite. That reaches no result."));
}

TEST(Remarks, EmptyRowsThatMayHoldAnything) {
  Dump dump = plain_dump(kShape);
  dump.rules.lengths = {5, 0};
  dump.empty_row = EmptyRow::Any;
  attend(dump, [&](const Place& at) { return padded_score(dump, at); });
  EXPECT_THAT(remarks(dump), ElementsAre(HasSubstr("10 rows see no key, and empty_row is any. They "
                                                   "hold 0:")));
}

TEST(Remarks, PositionsThatDoNotStartAtZero) {
  Dump dump = plain_dump(kShape);
  DumpRotary rotary;
  rotary.query_positions = Tensor<Index, 2>({2, 5});
  for (Index t = 0; t < 5; ++t) {
    rotary.query_positions(0, t) = t;
    rotary.query_positions(1, t) = t + 7;
  }
  rotary.key_positions = rotary.query_positions;
  dump.rotary = rotary;
  EXPECT_THAT(remarks(dump),
              ElementsAre(HasSubstr("of sample 1 start at 7 for queries and 7 for keys")));
}

TEST(Remarks, SinkTakesTheRest) {
  Dump dump = plain_dump(kShape);
  dump.sink = Tensor<double, 1>({2});
  dump.weights = Tensor<double, 4>({2, 2, 5, 5});
  for (Index row = 0; row < 20; ++row) {
    const Place at{row / 10, row / 5 % 2, row % 5, 0};
    double sum = 1;  // exp of a sink of 0
    for (Index s = 0; s < 5; ++s)
      sum += std::exp(dump.scale * product(dump, {at.b, at.h, at.t, s}));
    for (Index s = 0; s < 5; ++s) {
      (*dump.weights)(at.b, at.h, at.t, s) =
          std::exp(dump.scale * product(dump, {at.b, at.h, at.t, s})) / sum;
    }
  }
  EXPECT_THAT(remarks(dump), ElementsAre(HasSubstr("the sink takes the rest")));
}

TEST(Remarks, KeyBiasAndWeightsStoredTransposed) {
  Dump dump = plain_dump(kShape);
  dump.projections.emplace();
  dump.projections->key_bias = normal<1>({8}, 4);
  const Evaluator evaluator(dump, 1);
  const auto leaving_out = HasSubstr("leaving it out changes nothing in out");
  EXPECT_THAT(remarks_of(evaluator, {}), ElementsAre(leaving_out));
  dump.projections->stored_in_out = true;
  EXPECT_THAT(remarks_of(evaluator, {}), ElementsAre(HasSubstr("[in, out]"), leaving_out));
  EXPECT_THAT(remarks_of(evaluator, {.named = {"Q3"}}), ElementsAre(leaving_out));
  // With rotary positions the bias turns with its key.
  dump.rotary.emplace();
  dump.rotary->query_positions = Tensor<Index, 2>({1, 5});
  dump.rotary->key_positions = Tensor<Index, 2>({1, 5});
  EXPECT_THAT(remarks_of(evaluator, {.named = {"Q3"}}), IsEmpty());
}

}  // namespace
}  // namespace qkv::test
