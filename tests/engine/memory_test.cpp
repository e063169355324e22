// Peak memory of a long sequence: keys and values once more and a few tiles, never a score matrix (which would take 16 GiB
// here). A program of its own, each test in a process of its own, as a peak never falls.
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

constexpr Index kTokens = 65536;
constexpr Index kWidth = 64;
constexpr Extents<4> kShape{1, 1, kTokens, kWidth};

/// Every page of the tensor is touched before the measurement begins.
template <int Rank>
Tensor<float, Rank> filled(const Extents<Rank>& shape, float value) {
  Tensor<float, Rank> tensor(shape);
  std::fill(tensor.elements().begin(), tensor.elements().end(), value);
  return tensor;
}

/// Queries are 0, so that all scores are; values are 0 and 1 by turns.
struct LongSequence {
  Tensor<float, 4> query = filled<4>(kShape, 0);
  Tensor<float, 4> key = filled<4>(kShape, 1);
  Tensor<float, 4> value = filled<4>(kShape, 1);
  Tensor<float, 4> context = filled<4>(kShape, 1);
  Tensor<float, 3> log_sum_exp = filled<3>({1, 1, kTokens}, 1);

  LongSequence() {
    for (Index t = 0; t < kTokens; t += 2) std::fill_n(&value(0, 0, t, 0), kWidth, 0.0F);
  }
  AttentionInputs<float> inputs(const Mask& mask) const {
    AttentionInputs<float> inputs;
    inputs.query = query.view();
    inputs.key = key.view();
    inputs.value = value.view();
    inputs.mask = mask;
    return inputs;
  }
  void forward(const Mask& mask) {
    engine::forward(inputs(mask), {context.view(), std::nullopt, log_sum_exp.view()});
  }
};

double reported(double extra) {
  fmt::print("{:.1f} MiB beyond inputs and outputs\n", extra / 0x1p20);
  return extra;
}

TEST(Memory, OfALongSequenceStaysWithin64MiB) {
  LongSequence sequence;
  const double before = peak_bytes();
  sequence.forward({});
  EXPECT_LE(reported(peak_bytes() - before), 64 * 0x1p20);

  for (const Index t : {Index{0}, kTokens / 2, kTokens - 1}) {
    EXPECT_NEAR(sequence.context(0, 0, t, 5), 0.5, 1e-6);
    EXPECT_NEAR(sequence.log_sum_exp(0, 0, t), std::log(static_cast<double>(kTokens)), 1e-5);
  }
}

/// A window shortens the work and nothing else: memory is laid out as if all keys were seen.
TEST(Memory, OfALongSequenceAndItsGradientsStaysWithin160MiB) {
  constexpr Index kBefore = 127;
  const Mask mask = Mask::sliding_window({kBefore, 0});
  LongSequence sequence;
  const Tensor<float, 4> upstream = filled<4>(kShape, 1);
  Tensor<float, 4> query_gradient = filled<4>(kShape, 1);
  Tensor<float, 4> key_gradient = filled<4>(kShape, 1);
  Tensor<float, 4> value_gradient = filled<4>(kShape, 0);
  const double before = peak_bytes();
  sequence.forward(mask);
  engine::backward<float>(
      sequence.inputs(mask),
      {std::as_const(sequence.context).view(), std::as_const(sequence.log_sum_exp).view()},
      {.context = upstream.view()},
      {.query = query_gradient.view(), .key = key_gradient.view(), .value = value_gradient.view()});
  EXPECT_LE(reported(peak_bytes() - before), 160 * 0x1p20);

  // Each of 128 weights of a row is 1/128, and 128 rows see a key.
  const Index middle = kTokens / 2;
  EXPECT_NEAR(sequence.context(0, 0, middle, 5), 0.5, 1e-6);
  EXPECT_NEAR(value_gradient(0, 0, middle, 5), 1, 1e-5);
  EXPECT_NEAR(query_gradient(0, 0, middle, 5), 0, 1e-5);  // the keys are all the same
  EXPECT_EQ(key_gradient(0, 0, middle, 5), 0);            // the queries are 0
}

}  // namespace
}  // namespace qkv
