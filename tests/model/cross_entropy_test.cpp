// Cross-entropy by hand, and where it has no targets.
#include "model/cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>

namespace qkv {
namespace {

Tensor<double, 3> logits_of(std::initializer_list<double> values, Index tokens) {
  Tensor<double, 3> logits({1, tokens, static_cast<Index>(values.size()) / tokens});
  std::copy(values.begin(), values.end(), logits.data());
  return logits;
}

TEST(CrossEntropyTest, OfOneSixthIsLogSix) {
  const Tensor<double, 3> logits = logits_of({0, std::log(2.0), std::log(3.0)}, 1);
  Tensor<Index, 2> targets({1, 1});
  targets(0, 0) = 0;
  const CrossEntropy<double> result = cross_entropy(logits, targets);
  EXPECT_DOUBLE_EQ(result.loss, std::log(6.0));
  EXPECT_EQ(result.targets, 1);
  EXPECT_EQ(result.hits, 0);
  EXPECT_DOUBLE_EQ(result.gradient(0, 0, 0), 1.0 / 6 - 1);
  EXPECT_DOUBLE_EQ(result.gradient(0, 0, 1), 2.0 / 6);
  EXPECT_DOUBLE_EQ(result.gradient(0, 0, 2), 3.0 / 6);
}

TEST(CrossEntropyTest, IgnoredTargetsNeitherCountNorPull) {
  const Tensor<double, 3> logits = logits_of({0, 0, 5, -5, 1, 1 + std::log(3.0)}, 3);
  Tensor<Index, 2> targets({1, 3});
  targets(0, 0) = 1;
  targets(0, 1) = kIgnoredTarget;
  targets(0, 2) = 1;
  const CrossEntropy<double> result = cross_entropy(logits, targets);
  EXPECT_EQ(result.targets, 2);
  EXPECT_EQ(result.hits, 1);  // of equal logits the first counts as the largest
  EXPECT_DOUBLE_EQ(result.loss, (std::log(2.0) + std::log(4.0 / 3)) / 2);
  EXPECT_EQ(result.gradient(0, 1, 0), 0.0);
  EXPECT_EQ(result.gradient(0, 1, 1), 0.0);
  EXPECT_DOUBLE_EQ(result.gradient(0, 0, 1), (0.5 - 1) / 2);
}

TEST(CrossEntropyTest, WithoutTargetsIsZero) {
  const Tensor<double, 3> logits = logits_of({3, 4}, 1);
  Tensor<Index, 2> targets({1, 1});
  targets(0, 0) = kIgnoredTarget;
  const CrossEntropy<double> result = cross_entropy(logits, targets);
  EXPECT_EQ(result.loss, 0.0);
  EXPECT_EQ(result.targets, 0);
  EXPECT_EQ(result.gradient(0, 0, 0), 0.0);
}

TEST(CrossEntropyTest, LargeLogitsDoNotOverflow) {
  const Tensor<double, 3> logits = logits_of({1e4, 0}, 1);
  Tensor<Index, 2> targets({1, 1});
  targets(0, 0) = 1;
  EXPECT_DOUBLE_EQ(cross_entropy(logits, targets).loss, 1e4);
}

}  // namespace
}  // namespace qkv
