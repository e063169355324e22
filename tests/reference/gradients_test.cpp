// The oracle's derivatives against finite differences of its own forward, every entry of every input.
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <numeric>

#include "tests/reference/run.h"

namespace qkv {
namespace {

using cases::AttentionCase;
using cases::CaseData;

/// A linear function of all three outputs; its coefficients are the output gradients.
struct Loss {
  explicit Loss(const cases::CaseShape& s)
      : context(cases::random_tensor<double, 4>({s.batch, s.heads, s.queries, s.value_width}, 71)),
        weights(cases::random_tensor<double, 4>({s.batch, s.heads, s.queries, s.keys}, 72)),
        log_sum_exp(cases::random_tensor<double, 3>({s.batch, s.heads, s.queries}, 73)) {}

  double of(const cases::Outputs& outputs) const {
    const auto inner = [](std::span<const double> a, std::span<const double> b) {
      double sum = 0;
      // Rows that see nothing have log-sum-exp −∞, which no input can change.
      for (std::size_t i = 0; i < a.size(); ++i) sum += std::isinf(b[i]) ? 0 : a[i] * b[i];
      return sum;
    };
    return inner(context.elements(), outputs.context.elements()) +
           inner(weights.elements(), outputs.weights.elements()) +
           inner(log_sum_exp.elements(), outputs.log_sum_exp.elements());
  }

  AttentionOutputGradients<double> gradients() const {
    return {context.view(), weights.view(), log_sum_exp.view()};
  }

  Tensor<double, 4> context;
  Tensor<double, 4> weights;
  Tensor<double, 3> log_sum_exp;
};

/// d loss / d element by the four-point rule, whose error is of the order step⁴.
double finite_difference(const CaseData<double>& data, const Loss& loss, double& element) {
  constexpr double kStep = 2e-3;
  const double kept = element;
  const auto at = [&](double distance) {
    element = kept + distance;
    return loss.of(cases::run_forward(data.inputs()));
  };
  const double difference =
      (8 * (at(kStep) - at(-kStep)) - (at(2 * kStep) - at(-2 * kStep))) / (12 * kStep);
  element = kept;
  return difference;
}

void expect_gradient(const std::string& name, const CaseData<double>& data, const Loss& loss,
                     std::span<double> input, std::span<const double> gradient) {
  double largest = 1;
  for (const double g : gradient) largest = std::max(largest, std::fabs(g));
  for (std::size_t i = 0; i < input.size(); ++i) {
    if (std::isinf(input[i])) {
      EXPECT_EQ(gradient[i], 0) << name << " entry " << i << " hides its pair";
      continue;
    }
    ASSERT_NEAR(gradient[i], finite_difference(data, loss, input[i]), 1e-8 * largest)
        << name << " entry " << i;
  }
}

class Gradients : public testing::TestWithParam<AttentionCase> {};

TEST_P(Gradients, AgreeWithFiniteDifferences) {
  omp_set_num_threads(1);  // the sizes are tiny
  CaseData<double> data = cases::make_case<double>(GetParam());
  const Loss loss(GetParam().shape);
  const cases::Gradients gradients = cases::run_backward(data.inputs(), loss.gradients());
  expect_gradient("query", data, loss, data.query.elements(), gradients.query.elements());
  expect_gradient("key", data, loss, data.key.elements(), gradients.key.elements());
  expect_gradient("value", data, loss, data.value.elements(), gradients.value.elements());
  if (data.bias) {
    expect_gradient("bias", data, loss, data.bias->elements(), gradients.bias->elements());
  }
  if (data.sink) {
    expect_gradient("sink", data, loss, data.sink->elements(), gradients.sink->elements());
  }
}

INSTANTIATE_TEST_SUITE_P(AloneAndInPairs, Gradients,
                         testing::ValuesIn(cases::alone_and_in_pairs({.batch = 3,
                                                                      .heads = 4,
                                                                      .kv_heads = 2,
                                                                      .queries = 5,
                                                                      .keys = 6,
                                                                      .key_width = 7,
                                                                      .value_width = 8})),
                         [](const auto& instance) { return instance.param.name(); });

}  // namespace
}  // namespace qkv
