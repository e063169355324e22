// Holds the engine against the oracle where magnitudes are out of the ordinary.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/validate.h"
#include "tests/engine/bits.h"
#include "tests/engine/straightforward.h"

namespace qkv::cases {

/// The same numbers in the type that the engine computes with.
template <class T>
CaseData<engine::Arithmetic<T>> widened(const CaseData<T>& data) {
  using A = engine::Arithmetic<T>;
  const auto widen = [](const auto& from, auto to) {
    std::transform(from.elements().begin(), from.elements().end(), to.elements().begin(),
                   [](T x) { return static_cast<A>(static_cast<double>(x)); });
    return to;
  };
  CaseData<A> result;
  result.query = widen(data.query, Tensor<A, 4>(data.query.shape()));
  result.key = widen(data.key, Tensor<A, 4>(data.key.shape()));
  result.value = widen(data.value, Tensor<A, 4>(data.value.shape()));
  if (data.bias) result.bias = widen(*data.bias, Tensor<A, 4>(data.bias->shape()));
  if (data.sink) result.sink = widen(*data.sink, Tensor<A, 1>(data.sink->shape()));
  result.options.mask = data.options.mask;
  result.options.scale = data.options.scale;
  result.options.softcap = data.options.softcap;
  result.options.alibi = data.options.alibi;
  return result;
}

/// The largest Euclidean norm of a row.
template <class T>
double largest_norm(const Tensor<T, 4>& rows) {
  const auto width = static_cast<std::size_t>(rows.shape(3));
  double largest = 0;
  for (std::size_t i = 0; width > 0 && i < rows.elements().size(); i += width) {
    double sum = 0;
    for (const T x : rows.elements().subspan(i, width)) {
      sum += static_cast<double>(x) * static_cast<double>(x);
    }
    largest = std::max(largest, sum);
  }
  return std::sqrt(largest);
}

/// What the scores add up from, at most: a product of norms, a bias, a distance.
template <class A>
double largest_logit(const CaseData<A>& data, const AttentionPlan& plan) {
  double largest = std::fabs(plan.scale) * largest_norm(data.query) * largest_norm(data.key);
  if (data.bias) largest += magnitude<A>(data.bias->elements());
  if (!data.options.alibi) return largest;
  double distance = 0;
  for (const Index offset : plan.alibi_offsets) {
    const Index last = plan.shape.queries - 1 + offset;
    distance = std::max({distance, std::fabs(static_cast<double>(last)),
                         std::fabs(static_cast<double>(offset - plan.shape.keys + 1))});
  }
  return largest + magnitude<double>(data.options.alibi->slopes) * distance;
}

/// An error may be twice that of a straightforward computation of the same precision, or four roundings of the largest
/// magnitude that can enter: a relative error of a logit is an absolute one of its exponential. Below the normal numbers
/// every term of a sum rounds to the smallest one.
template <class T>
void expect_agreement(const CaseData<T>& data, const engine::Options& options,
                      const std::string& what) {
  using A = engine::Arithmetic<T>;
  const CaseData<A> wide = widened(data);
  const AttentionInputs<A> inputs = wide.inputs();
  const Outputs expected = run_forward(inputs);
  const Outputs plain = straightforward_forward(inputs);
  const double logit = std::max(1.0, largest_logit(wide, validate_inputs("test", inputs)));
  const double rounding = 4 * std::numeric_limits<A>::epsilon() * logit;
  const double smallest =
      static_cast<double>(data.key.shape(2)) * std::numeric_limits<A>::denorm_min();
  for (const bool with_weights : {false, true}) {
    const auto got = run_engine(data.inputs(), options, with_weights);
    const auto hold = [&](std::span<const A> a, std::span<const double> b,
                          std::span<const double> c, double size, const char* name) {
      EXPECT_LE(difference(a, b), std::max(2 * difference(c, b), rounding * size + smallest))
          << what << ": " << name << (with_weights ? ", with weights" : "");
    };
    const double value = magnitude<A>(wide.value.elements());
    const double sum = std::max(1.0, std::log(static_cast<double>(data.key.shape(2) + 1)));
    hold(got.context.elements(), expected.context.elements(), plain.context.elements(), value,
         "context");
    hold(got.log_sum_exp.elements(), expected.log_sum_exp.elements(), plain.log_sum_exp.elements(),
         sum, "log_sum_exp");
    if (!with_weights) continue;
    hold(got.weights.elements(), expected.weights.elements(), plain.weights.elements(), 1,
         "weights");
  }
}

}  // namespace qkv::cases
