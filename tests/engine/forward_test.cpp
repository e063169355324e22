// The engine's forward against the oracle, on every SIMD target that this processor runs.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>

#include "tests/engine/bits.h"
#include "tests/engine/engine_cases.h"
#include "tests/engine/straightforward.h"

namespace qkv {
namespace {

using cases::AttentionCase;
using cases::difference;
using cases::magnitude;

class EveryTarget : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Simd, EveryTarget, testing::ValuesIn(engine::targets()),
                         [](const auto& target) { return target.param; });

TEST_P(EveryTarget, Float64AgreesWithTheOracleTo1e12) {
  omp_set_num_threads(2);
  std::size_t count = 0;
  double worst = 0;
  for (const AttentionCase& one : cases::engine_cases()) {
    const auto data = cases::make_case<double>(one);
    const bool with_weights = count % 2 == 0;
    const cases::Outputs expected = cases::run_forward(data.inputs());
    const auto got =
        cases::run_engine(data.inputs(), {.threads = 2, .target = GetParam()}, with_weights);
    const auto hold = [&](std::span<const double> a, std::span<const double> b, const char* what) {
      const double relative = difference(a, b) / std::max(magnitude(b), 1e-300);
      worst = std::max(worst, relative);
      EXPECT_LE(relative, 1e-12) << one.name() << ": " << what;
    };
    hold(got.context.elements(), expected.context.elements(), "context");
    hold(got.log_sum_exp.elements(), expected.log_sum_exp.elements(), "log_sum_exp");
    if (with_weights) hold(got.weights.elements(), expected.weights.elements(), "weights");
    ++count;
  }
  fmt::print("{} cases on {}, largest relative difference {:.1e}\n", count, GetParam(), worst);
}

/// Twice what a straightforward computation in float32 makes, and at least a few units of the largest magnitude: on a single
/// case the straightforward one may be right by luck.
TEST_P(EveryTarget, Float32RoundsLikeAStraightforwardComputation) {
  constexpr double kFloor = 4 * 0x1p-23;
  std::size_t count = 0;
  double worst = 0;
  for (const AttentionCase& one : cases::engine_cases()) {
    const auto data = cases::make_case<float>(one);
    const bool with_weights = count % 2 == 1;
    const cases::Outputs expected = cases::run_forward(data.inputs());
    const cases::Outputs plain = cases::straightforward_forward(data.inputs());
    const auto got =
        cases::run_engine(data.inputs(), {.threads = 2, .target = GetParam()}, with_weights);
    const auto hold = [&](std::span<const float> a, std::span<const double> b,
                          std::span<const double> c, double scale, const char* what) {
      const double allowed = std::max(2 * difference(c, b), kFloor * scale);
      const double here = difference(a, b);
      if (allowed > 0) worst = std::max(worst, here / allowed);
      EXPECT_LE(here, allowed) << one.name() << ": " << what;
    };
    double largest_value = 0;
    for (const float v : data.value.elements())
      largest_value = std::max(largest_value, std::fabs(double{v}));
    hold(got.context.elements(), expected.context.elements(), plain.context.elements(),
         largest_value, "context");
    hold(got.log_sum_exp.elements(), expected.log_sum_exp.elements(), plain.log_sum_exp.elements(),
         magnitude(expected.log_sum_exp.elements()), "log_sum_exp");
    if (with_weights) {
      hold(got.weights.elements(), expected.weights.elements(), plain.weights.elements(), 1,
           "weights");
    }
    ++count;
  }
  fmt::print("{} cases on {}, at most {:.0f} % of what is allowed\n", count, GetParam(),
             100 * worst);
}

}  // namespace
}  // namespace qkv
