// The engine's gradients against the oracle's, on every SIMD target that this processor runs.
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

/// Derivatives with respect to context, log-sum-exp and, in every third case, weights.
template <class T>
struct Upstream {
  Upstream(const cases::CaseShape& s, std::uint64_t number)
      : context(cases::random_tensor<T, 4>({s.batch, s.heads, s.queries, s.value_width}, number)),
        log_sum_exp(cases::random_tensor<T, 3>({s.batch, s.heads, s.queries}, number + 1)) {
    if (number % 3 == 0) {
      weights = cases::random_tensor<T, 4>({s.batch, s.heads, s.queries, s.keys}, number + 2);
    }
    with_log_sum_exp = number % 2 == 0;
  }

  AttentionOutputGradients<T> views() const {
    AttentionOutputGradients<T> result{context.view(), std::nullopt, std::nullopt};
    if (weights) result.weights = weights->view();
    if (with_log_sum_exp) result.log_sum_exp = log_sum_exp.view();
    return result;
  }

  Tensor<T, 4> context;
  Tensor<T, 3> log_sum_exp;
  std::optional<Tensor<T, 4>> weights;
  bool with_log_sum_exp = false;
};

Upstream<double> widened(const Upstream<float>& from, const cases::CaseShape& shape,
                         std::uint64_t number) {
  Upstream<double> result(shape, number);
  const auto copy = [](const auto& source, auto& target) {
    std::copy(source.elements().begin(), source.elements().end(), target.elements().begin());
  };
  copy(from.context, result.context);
  copy(from.log_sum_exp, result.log_sum_exp);
  if (from.weights) copy(*from.weights, *result.weights);
  return result;
}

TEST(EngineBackward, Float64AgreesWithTheOracleTo1e12) {
  omp_set_num_threads(1);  // of the oracle: the sizes are tiny
  std::uint64_t count = 0;
  double worst = 0;
  for (const AttentionCase& one : cases::engine_cases()) {
    const auto data = cases::make_case<double>(one);
    const Upstream<double> upstream(one.shape, count++);
    const cases::Gradients expected = cases::run_backward(data.inputs(), upstream.views());
    for (const std::string& target : test::simd_targets()) {
      const auto got =
          cases::run_engine_backward(data.inputs(), upstream.views(), cases::options_on(target, 2));
      const auto hold = [&](const auto& a, const auto& b, const char* what) {
        const double relative = difference<double>(a.elements(), b.elements()) /
                                std::max(magnitude<double>(b.elements()), 1.0);
        worst = std::max(worst, relative);
        EXPECT_LE(relative, 1e-12) << one.name() << " on " << target << ": " << what;
      };
      hold(got.query, expected.query, "query");
      hold(got.key, expected.key, "key");
      hold(got.value, expected.value, "value");
      if (got.bias) hold(*got.bias, *expected.bias, "bias");
      if (got.sink) hold(*got.sink, *expected.sink, "sink");
    }
  }
  fmt::print("{} cases on each of {}, largest relative difference {:.1e}\n", count,
             fmt::join(test::simd_targets(), ", "), worst);
}

/// As for the forward: twice what a straightforward computation makes, and at least the floor of the model.
TEST(EngineBackward, Float32RoundsLikeAStraightforwardComputation) {
  omp_set_num_threads(1);  // of the oracle: the sizes are tiny
  std::uint64_t count = 0;
  double worst = 0;
  for (const AttentionCase& one : cases::engine_cases()) {
    const auto data = cases::make_case<float>(one);
    const Upstream<float> upstream(one.shape, count);
    const Upstream<double> upstream64 = widened(upstream, one.shape, count++);
    const cases::Gradients expected = cases::run_backward(data.inputs(), upstream64.views());
    const cases::Gradients plain = cases::straightforward_backward(data.inputs(), upstream.views());
    const double floor = rounding_floor(
        kFloat32Roundoff,
        std::max(magnitude<double>(cases::run_forward(data.inputs()).log_sum_exp.elements()),
                 cases::entering_score(data.inputs())));
    const double entering = cases::entering_gradient<float>(data.inputs(), upstream.context.view());
    for (const std::string& target : test::simd_targets()) {
      const auto got =
          cases::run_engine_backward(data.inputs(), upstream.views(), cases::options_on(target, 2));
      const auto hold = [&](const auto& a, const auto& b, const auto& c, const char* what) {
        const double scale = std::max(magnitude<double>(b.elements()), entering);
        const double allowed =
            std::max(2 * difference<double>(c.elements(), b.elements()), floor * scale);
        const double here = difference<float>(a.elements(), b.elements());
        worst = std::max(worst, here / allowed);
        EXPECT_LE(here, allowed) << one.name() << " on " << target << ": " << what;
      };
      hold(got.query, expected.query, plain.query, "query");
      hold(got.key, expected.key, plain.key, "key");
      hold(got.value, expected.value, plain.value, "value");
      if (got.bias) hold(*got.bias, *expected.bias, *plain.bias, "bias");
      if (got.sink) hold(*got.sink, *expected.sink, *plain.sink, "sink");
    }
  }
  fmt::print("{} cases on each of {}, at most {:.0f} % of what is allowed\n", count,
             fmt::join(test::simd_targets(), ", "), 100 * worst);
}

}  // namespace
}  // namespace qkv
