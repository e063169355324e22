// The cases that are measured, and the operations that count, by hand.
#include "bench/bench_case.h"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace qkv::bench {
namespace {

using ::testing::Contains;
using ::testing::IsSupersetOf;

BenchCase of(BenchMask mask, Index tokens, Pass pass = Pass::Forward) {
  BenchCase one;
  one.mask = mask;
  one.pass = pass;
  one.batch = 2;
  one.heads = 3;
  one.tokens = tokens;
  one.width = 8;
  return one;
}

TEST(BenchFlops, FourForEachPairAndColumn) {
  // 2·3 heads, 10·10 pairs, 8 columns: a product for the score and one for the context, 2 flops each.
  EXPECT_EQ(of(BenchMask::None, 10).flops(), 4.0 * 6 * 100 * 8);
  EXPECT_EQ(of(BenchMask::Bias, 10).flops(), 4.0 * 6 * 100 * 8);
  EXPECT_EQ(of(BenchMask::Boolean, 10).flops(), 4.0 * 6 * 100 * 8);
  EXPECT_EQ(of(BenchMask::PaddedQuarter, 10).flops(), 4.0 * 6 * 100 * 8);
}

TEST(BenchFlops, CausalIsHalf) { EXPECT_EQ(of(BenchMask::Causal, 10).flops(), 4.0 * 6 * 50 * 8); }

TEST(BenchFlops, WindowCountsWhatItShows) {
  // Rows 0 … 255 see 1 … 256 keys, the other 44 see 256: 256·257/2 + 44·256 pairs.
  EXPECT_EQ(of(BenchMask::Window256, 300).flops(), 4.0 * 6 * (32896 + 11264) * 8);
  // A window longer than the input is a triangle: 1 + 2 + … + 10.
  EXPECT_EQ(of(BenchMask::Window256, 10).flops(), 4.0 * 6 * 55 * 8);
}

TEST(BenchFlops, DocumentsCountWhatTheyShow) {
  // Documents of 512, 512 and 76 tokens.
  EXPECT_EQ(of(BenchMask::Documents512, 1100).flops(), 4.0 * 6 * (2 * 512 * 512 + 76 * 76) * 8);
}

TEST(BenchFlops, ForwardAndBackwardAreSevenProductsInsteadOfTwo) {
  EXPECT_EQ(of(BenchMask::None, 10, Pass::ForwardBackward).flops(), 14.0 * 6 * 100 * 8);
  EXPECT_EQ(of(BenchMask::Causal, 10, Pass::ForwardBackward).flops(), 14.0 * 6 * 50 * 8);
}

TEST(BenchFlops, ModuleAddsItsProjections) {
  BenchCase module = of(BenchMask::None, 10);
  module.operation = Operation::Module;
  // 2·10 tokens through four weights of 24 × 24.
  EXPECT_EQ(module.flops(), 4.0 * 6 * 100 * 8 + 2.0 * 20 * 4 * 24 * 24);
  module.pass = Pass::ForwardBackward;
  EXPECT_EQ(module.flops(), 14.0 * 6 * 100 * 8 + 6.0 * 20 * 4 * 24 * 24);
}

TEST(BenchBytes, AreKeysAndValuesOnce) {
  BenchCase one = of(BenchMask::None, 1000);
  one.operation = Operation::Decode;
  one.batch = 1;
  one.kv_heads = 2;
  one.dtype = DType::Float16;
  EXPECT_EQ(one.bytes(), 2.0 * 2 * 1000 * 8 * 2);
  EXPECT_EQ(one.work(), one.bytes());
  EXPECT_EQ(one.flops(), 4.0 * 3 * 1000 * 8);  // one new token, 3 heads
}

TEST(BenchCases, NamesAreDistinct) {
  std::set<std::string> names;
  for (const BenchCase& one : bench_cases()) {
    EXPECT_TRUE(names.insert(one.describe()).second) << one.describe();
  }
}

TEST(BenchCases, HoldWhatTheDocumentPromises) {
  std::vector<std::string> names;
  for (const BenchCase& one : bench_cases()) names.push_back(one.describe());
  for (const std::string shape :
       {"1x12x512x64", "1x12x2048x64", "1x8x4096x128", "4x12x512x64", "1x32x1024x128"}) {
    for (const std::string pass : {"forward", "forward+backward"}) {
      for (const std::string mask : {"no mask", "causal"}) {
        EXPECT_THAT(names, Contains(pass + ", " + mask + ", " + shape + ", float32"));
      }
    }
  }
  EXPECT_THAT(
      names,
      IsSupersetOf(
          {"forward, padded quarter, 1x12x2048x64, float32",
           "forward, boolean, 1x12x2048x64, float32", "forward, float bias, 1x12x2048x64, float32",
           "forward, window 256, 1x12x4096x64, float32",
           "forward, documents 512, 1x12x4096x64, float32", "forward, no mask, 1x12x1x64, float32",
           "forward, no mask, 1x12x1024x64, float64",
           "forward, causal, 1x1x4096x64, float32, 1 thread",
           "forward, causal, 1x1x4096x64, float32, 2 threads",
           "module forward, no mask, 8x12x128x32, float32",
           "decode, 1 of 4096 tokens, 32 heads on 32, width 128, float32",
           "decode, 1 of 32768 tokens, 32 heads on 8, width 128, bfloat16",
           "decode, 16 of 32768 tokens, 32 heads on 32, width 128, float32"}));
}

TEST(BenchCases, QuickIsASmallPart) {
  const auto cases = bench_cases();
  const auto quick =
      std::count_if(cases.begin(), cases.end(), [](const BenchCase& one) { return one.quick; });
  EXPECT_GT(quick, 0);
  EXPECT_LT(quick, 6);
}

}  // namespace
}  // namespace qkv::bench
