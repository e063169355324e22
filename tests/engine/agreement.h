// Holds the engine against the oracle where magnitudes are out of the ordinary.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

#include "base/rounding.h"
#include "base/validate.h"
#include "tests/engine/bits.h"
#include "tests/engine/comparison.h"
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

/// The magnitude that enters a score with its bias and its distance.
template <class A>
double entering_modified_score(const CaseData<A>& data, const AttentionPlan& plan) {
  double largest = plan.shape.key_width == 0 ? 0 : entering_score(data.inputs());
  if (data.bias) largest += magnitude<A>(data.bias->elements());
  if (!data.options.alibi) return largest;
  double distance = 0;
  for (Index b = 0; b < plan.shape.batch; ++b) {
    const Index offset = plan.alibi_offset(b);
    const Index last = plan.shape.queries - 1 + offset;
    distance = std::max({distance, std::fabs(static_cast<double>(last)),
                         std::fabs(static_cast<double>(offset - plan.shape.keys + 1))});
  }
  return largest + magnitude<double>(data.options.alibi->slopes) * distance;
}

/// An error may be twice that of a straightforward computation in the same precision, or what the model of rounding
/// explains. Below the normal numbers every term of a sum rounds to the smallest one.
template <class T>
void expect_agreement(const CaseData<T>& data, const engine::Options& options,
                      const std::string& what) {
  using A = engine::Arithmetic<T>;
  const CaseData<A> wide = widened(data);
  const AttentionInputs<A> inputs = wide.inputs();
  const Outputs expected = run_forward(inputs);
  const Outputs plain = straightforward_forward(inputs);
  const double score = std::max(magnitude<double>(expected.log_sum_exp.elements()),
                                entering_modified_score(wide, validate_inputs("test", inputs)));
  double floor = rounding_floor(std::numeric_limits<A>::epsilon() / 2, score);
  if (std::is_same_v<A, double>) floor = std::max(floor, 1e-12);  // the oracle itself rounds, too
  const double smallest =
      static_cast<double>(data.key.shape(2)) * std::numeric_limits<A>::denorm_min();
  for (const bool with_weights : {false, true}) {
    const auto got = run_engine(data.inputs(), options, with_weights);
    const auto hold = [&](const auto& a, const auto& b, const auto& c, double size,
                          const char* name) {
      EXPECT_LE(
          difference<A>(a.elements(), b.elements()),
          std::max(2 * difference<double>(c.elements(), b.elements()), floor * size + smallest))
          << what << ": " << name << (with_weights ? ", with weights" : "");
    };
    hold(got.context, expected.context, plain.context, magnitude<A>(wide.value.elements()),
         "context");
    hold(got.log_sum_exp, expected.log_sum_exp, plain.log_sum_exp, 1, "log_sum_exp");
    if (with_weights) hold(got.weights, expected.weights, plain.weights, 1, "weights");
  }
}

}  // namespace qkv::cases
