// Peak memory of a long sequence: keys and values once more and a few tiles, never a score matrix (which would take 16 GiB
// here). A program of its own, as a peak never falls.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "qkv/engine.h"

namespace qkv {
namespace {

/// Largest resident size so far, in bytes.
double peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return 1024.0 * static_cast<double>(usage.ru_maxrss);
}

TEST(Memory, OfALongSequenceStaysWithin64MiB) {
  constexpr Index kTokens = 65536;
  constexpr Index kWidth = 64;
  const Extents<4> shape{1, 1, kTokens, kWidth};
  Tensor<float, 4> query(shape);
  Tensor<float, 4> key(shape);
  Tensor<float, 4> value(shape);
  Tensor<float, 4> context(shape);
  Tensor<float, 3> log_sum_exp({1, 1, kTokens});
  // Every page of the tensors is touched before the measurement begins.
  for (Index t = 0; t < kTokens; ++t) {
    for (Index d = 0; d < kWidth; ++d) {
      value(0, 0, t, d) = static_cast<float>(t % 2);
      context(0, 0, t, d) = 1;
    }
  }
  std::fill(query.elements().begin(), query.elements().end(), 0.0F);
  std::fill(key.elements().begin(), key.elements().end(), 1.0F);
  std::fill(log_sum_exp.elements().begin(), log_sum_exp.elements().end(), 1.0F);

  const double before = peak_bytes();
  AttentionInputs<float> inputs;
  inputs.query = std::as_const(query).view();
  inputs.key = std::as_const(key).view();
  inputs.value = std::as_const(value).view();
  engine::forward(inputs, {context.view(), std::nullopt, log_sum_exp.view()});
  const double extra = peak_bytes() - before;
  fmt::print("{:.1f} MiB beyond inputs and outputs\n", extra / 0x1p20);
  EXPECT_LE(extra, 64 * 0x1p20);

  // All scores are 0: every row is the mean of the values, 0 and 1 by turns.
  for (const Index t : {Index{0}, kTokens / 2, kTokens - 1}) {
    EXPECT_NEAR(context(0, 0, t, 5), 0.5, 1e-6);
    EXPECT_NEAR(log_sum_exp(0, 0, t), std::log(static_cast<double>(kTokens)), 1e-5);
  }
}

}  // namespace
}  // namespace qkv
