// FlexAttention in the rounds: PyTorch's own, not compiled, held against the oracle like everybody. No time is asserted.
#include "check/flex_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/bench.h"

namespace qkv::bench {
namespace {

using ::testing::HasSubstr;

BenchCase small(BenchMask mask) {
  BenchCase one;
  one.mask = mask;
  one.batch = 2;
  one.heads = 3;
  one.tokens = 600;  // more than a window, and a document and a bit
  one.width = 16;
  return one;
}

TEST(FlexAttention, AgreesWithTheOracleInTheRounds) {
  const auto flex = make_flex_attention_peer({.program = QKV_PYTHON, .mode = FlexMode::Eager});
  Bench bench({.threads = 1, .rounds = 1}, {.flex = flex.get()}, [](std::string_view) {});
  for (const BenchMask mask : {BenchMask::Window256, BenchMask::Documents512}) {
    const BenchRow row = bench.measure(small(mask));
    EXPECT_EQ(row.flex_missing, "");
    ASSERT_TRUE(row.flex) << name_of(mask);
    EXPECT_TRUE(row.passed()) << row.flex->check.difference;
    EXPECT_GT(row.flex->check.difference, 0);  // its own float32
    EXPECT_THAT(row.flex->form, HasSubstr("flex_attention, eager"));
    EXPECT_GT(row.flex->best, 0);
    EXPECT_GT(row.flex->ratio, 0);
    EXPECT_GE(row.rounds, 1);
  }
  EXPECT_THAT(flex->describe().front(), HasSubstr("FlexAttention of PyTorch "));
}

TEST(FlexAttention, IsNotAskedForOtherCases) {
  const auto flex = make_flex_attention_peer({.program = "/nowhere/python"});
  Bench bench({.threads = 1, .rounds = 1}, {.flex = flex.get()}, [](std::string_view) {});
  const BenchRow row = bench.measure(small(BenchMask::Causal));
  EXPECT_FALSE(row.flex);
  EXPECT_EQ(row.flex_missing, "");
}

}  // namespace
}  // namespace qkv::bench
