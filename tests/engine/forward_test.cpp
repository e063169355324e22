// The engine's forward against the oracle, on every SIMD target that this processor runs.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <omp.h>

#include "base/rounding.h"
#include "tests/engine/comparison.h"
#include "tests/engine/engine_cases.h"
#include "tests/engine/run.h"
#include "tests/engine/simd_targets.h"
#include "tests/engine/straightforward.h"

namespace qkv {
namespace {

using cases::AttentionCase;
using cases::difference;
using cases::magnitude;

TEST(EngineForward, Float64AgreesWithTheOracleTo1e12) {
  omp_set_num_threads(1);  // of the oracle: the sizes are tiny
  std::size_t count = 0;
  double worst = 0;
  for (const AttentionCase& one : cases::engine_cases()) {
    const auto data = cases::make_case<double>(one);
    const bool with_weights = count++ % 2 == 0;
    const cases::Outputs expected = cases::run_forward(data.inputs());
    for (const std::string& target : test::simd_targets()) {
      const auto got = cases::run_engine(data.inputs(), cases::options_on(target, 2), with_weights);
      const auto hold = [&](const auto& a, const auto& b, const char* what) {
        const double relative = difference<double>(a.elements(), b.elements()) /
                                std::max(magnitude<double>(b.elements()), 1e-300);
        worst = std::max(worst, relative);
        EXPECT_LE(relative, 1e-12) << one.name() << " on " << target << ": " << what;
      };
      hold(got.context, expected.context, "context");
      hold(got.log_sum_exp, expected.log_sum_exp, "log_sum_exp");
      if (with_weights) hold(got.weights, expected.weights, "weights");
    }
  }
  fmt::print("{} cases on each of {}, largest relative difference {:.1e}\n", count,
             fmt::join(test::simd_targets(), ", "), worst);
}

/// Twice what a straightforward computation in float32 makes, and at least the floor of the model: on a single case
/// the straightforward one may be right by luck.
TEST(EngineForward, Float32RoundsLikeAStraightforwardComputation) {
  omp_set_num_threads(1);  // of the oracle: the sizes are tiny
  std::size_t count = 0;
  double worst = 0;
  for (const AttentionCase& one : cases::engine_cases()) {
    const auto data = cases::make_case<float>(one);
    const bool with_weights = count++ % 2 == 1;
    const cases::Outputs expected = cases::run_forward(data.inputs());
    const cases::Outputs plain = cases::straightforward_forward(data.inputs());
    const double floor = rounding_floor(kFloat32Roundoff,
                                        std::max(magnitude<double>(expected.log_sum_exp.elements()),
                                                 cases::entering_score(data.inputs())));
    const double largest_value = magnitude<float>(data.value.elements());
    for (const std::string& target : test::simd_targets()) {
      const auto got = cases::run_engine(data.inputs(), cases::options_on(target, 2), with_weights);
      const auto hold = [&](const auto& a, const auto& b, const auto& c, double scale,
                            const char* what) {
        const double allowed =
            std::max(2 * difference<double>(c.elements(), b.elements()), floor * scale);
        const double here = difference<float>(a.elements(), b.elements());
        if (allowed > 0) worst = std::max(worst, here / allowed);
        EXPECT_LE(here, allowed) << one.name() << " on " << target << ": " << what;
      };
      hold(got.context, expected.context, plain.context, largest_value, "context");
      hold(got.log_sum_exp, expected.log_sum_exp, plain.log_sum_exp, 1, "log_sum_exp");
      if (with_weights) hold(got.weights, expected.weights, plain.weights, 1, "weights");
    }
  }
  fmt::print("{} cases on each of {}, at most {:.0f} % of what is allowed\n", count,
             fmt::join(test::simd_targets(), ", "), 100 * worst);
}

}  // namespace
}  // namespace qkv
