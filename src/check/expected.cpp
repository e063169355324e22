#include "check/expected.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "base/broadcast.h"
#include "check/expected_head.h"

namespace qkv {
namespace {

constexpr double kAnything = std::numeric_limits<double>::infinity();

template <int Rank>
void fill(Tensor<double, Rank>& tensor, double value) {
  std::fill(tensor.elements().begin(), tensor.elements().end(), value);
}

template <int Rank>
Rounded<Rank> zeros(const Extents<Rank>& shape) {
  return {Tensor<double, Rank>(shape), Tensor<double, Rank>(shape)};
}

Tensor<double, 2> matrix_of(const Tensor<double, 4>& tensor, Index b, Index h) {
  const Extents<2> shape{tensor.shape(2), tensor.shape(3)};
  const double* first = tensor.data() + (b * tensor.shape(1) + h) * shape[0] * shape[1];
  return contiguous_copy(TensorView<const double, 2>(first, shape));
}

/// What a row that sees no key gives under the dump's policy.
void fill_empty_row(EmptyRow policy, const ExpectedHead& one, Index t, Expected& expected) {
  const Index b = one.head.b;
  const Index h = one.head.h;
  const Index keys = one.head.value.shape(0);
  expected.empty(b, h, t) = true;
  const bool mean = policy == EmptyRow::Mean && keys > 0;
  if (policy == EmptyRow::Any) {
    const auto any = row_of(expected.context.variance, b, h, t);
    std::fill(any.begin(), any.end(), kAnything);
    if (!expected.weights) return;
    const auto any_weight = row_of(expected.weights->variance, b, h, t);
    std::fill(any_weight.begin(), any_weight.end(), kAnything);
    return;
  }
  const double other = policy == EmptyRow::NaN ? std::numeric_limits<double>::quiet_NaN() : 0;
  const double weight = mean ? 1 / static_cast<double>(keys) : other;
  const std::vector<double> weights(static_cast<std::size_t>(keys), weight);
  const std::vector<double> exact(weights.size(), 0.0);
  const auto context = row_of(expected.context.value, b, h, t);
  const auto variance = row_of(expected.context.variance, b, h, t);
  std::fill(context.begin(), context.end(), other);
  if (mean) {
    for (Index s = 0; s < keys; ++s) {
      for (std::size_t d = 0; d < context.size(); ++d) {
        context[d] += weight * row_of(one.head.value, s)[d];
      }
    }
    context_variance(
        expected.arithmetic,
        {weights, exact, one.head.value.elements(), one.value_variance.elements(), context},
        variance);
  }
  if (!expected.weights) return;
  std::copy(weights.begin(), weights.end(), row_of(expected.weights->value, b, h, t).begin());
  if (!mean) return;
  weight_variance(expected.arithmetic, weights, exact, row_of(expected.weights->variance, b, h, t));
}

/// Step 2 of attention for one row, and the variance of every result.
void fill_row(const ExpectedHead& one, Index t, Expected& expected) {
  const Index b = one.head.b;
  const Index h = one.head.h;
  const auto weight = row_of(one.scores.weights, t);
  const auto variance = row_of(one.score_variance, t);
  const auto context = row_of(expected.context.value, b, h, t);
  for (std::size_t s = 0; s < weight.size(); ++s) {
    if (!one.scores.visible(t, static_cast<Index>(s))) continue;
    const double* value = one.head.value.data() + s * context.size();
    for (std::size_t d = 0; d < context.size(); ++d) context[d] += weight[s] * value[d];
  }
  context_variance(
      expected.arithmetic,
      {weight, variance, one.head.value.elements(), one.value_variance.elements(), context},
      row_of(expected.context.variance, b, h, t));
  if (expected.weights) {
    std::copy(weight.begin(), weight.end(), row_of(expected.weights->value, b, h, t).begin());
    weight_variance(expected.arithmetic, weight, variance,
                    row_of(expected.weights->variance, b, h, t));
  }
  if (expected.log_sum_exp) {
    const double lse = one.scores.log_sum_exp(t);
    expected.log_sum_exp->value(b, h, t) = lse;
    expected.log_sum_exp->variance(b, h, t) =
        log_sum_exp_variance(expected.arithmetic, lse, weight, variance);
  }
}

/// The magnitude of what is added to each score of a row: the bias, and slope·s where the code adds no distances but leaves
/// the rest to the softmax, which forgets a constant. That needs float32; in 16 bits it would be a mistake.
std::vector<double> added_to(const AttentionInputs<double>& inputs, const AttentionPlan& plan,
                             const reference::Head& head, Index t, bool by_key) {
  if (!inputs.bias && !inputs.alibi) return {};
  std::vector<double> added(static_cast<std::size_t>(plan.shape.keys));
  for (Index s = 0; s < plan.shape.keys; ++s) {
    double& one = added[static_cast<std::size_t>(s)];
    if (inputs.bias) one = std::fabs(broadcast_at(*inputs.bias, head.b, head.h, t, s));
    if (!std::isfinite(one)) one = 0;
    if (!inputs.alibi) continue;
    const Index offset = plan.alibi_offset(head.b);
    const Index distance = std::abs(t + offset - s);
    const double slope = inputs.alibi->slopes[static_cast<std::size_t>(head.h)];
    one += std::fabs(slope) * static_cast<double>(by_key ? std::max(distance, s) : distance);
  }
  return added;
}

/// The variance of one row's scores, and the scores where the dump has them.
void score_row(const AttentionInputs<double>& inputs, const AttentionPlan& plan, bool wanted,
               Index t, ExpectedHead& one, Expected& expected) {
  const auto keys = static_cast<std::size_t>(plan.shape.keys);
  const auto weight = row_of(one.scores.weights, t);
  std::vector<double> score(keys);
  for (std::size_t s = 0; s < keys; ++s) {
    score[s] = std::log(weight[s]) + one.scores.log_sum_exp(t);
    if (wanted && one.scores.visible(t, static_cast<Index>(s))) {
      score[s] = reference::score(inputs, plan, one.head, t, static_cast<Index>(s));
    }
  }
  const bool is_wide = expected.arithmetic.storage == expected.arithmetic.compute;
  const auto added = added_to(inputs, plan, one.head, t, is_wide);
  score_variance(
      expected.arithmetic,
      {row_of(one.head.query, t), row_of(one.query_variance, t), one.head.key.elements(),
       one.key_variance.elements(), plan.scale, added, inputs.softcap.has_value(), score},
      {one.score_variance.data() + static_cast<std::size_t>(t) * keys, keys});
  if (!wanted) return;
  const auto value = row_of(expected.scores->value, one.head.b, one.head.h, t);
  const auto variance = row_of(expected.scores->variance, one.head.b, one.head.h, t);
  for (std::size_t s = 0; s < keys; ++s) {
    if (!one.scores.visible(t, static_cast<Index>(s))) continue;
    value[s] = score[s];
    variance[s] = one.score_variance(t, static_cast<Index>(s)) +
                  output_variance(expected.arithmetic, score[s]);
  }
}

/// Whatever is in a row that nobody reads.
void free_unread_rows(const Dump& dump, Expected& expected) {
  if (!dump.read_rows) return;
  const auto free = [&](Tensor<double, 4>& variance) {
    for (Index b = 0; b < variance.shape(0); ++b) {
      for (Index t = 0; t < variance.shape(2); ++t) {
        if ((*dump.read_rows)(b, t)) continue;
        for (Index h = 0; h < variance.shape(1); ++h) {
          const auto row = row_of(variance, b, h, t);
          std::fill(row.begin(), row.end(), kAnything);
          if (expected.log_sum_exp) expected.log_sum_exp->variance(b, h, t) = kAnything;
        }
      }
    }
  };
  free(expected.context.variance);
  if (expected.weights) free(expected.weights->variance);
  if (expected.scores) free(expected.scores->variance);
  if (expected.query_gradient) free(expected.query_gradient->variance);
}

/// [B,T,H·Dv] through the output projection.
Rounded<3> projected_context(const Dump& dump, const Expected& expected) {
  const auto value = merge_heads(expected.context.value.view());
  const auto variance = merge_heads(expected.context.variance.view());
  const Index tokens = value.shape(0) * value.shape(1);
  const TensorView<const double, 2> rows(value.data(), {tokens, value.shape(2)});
  const TensorView<const double, 2> rows_variance(variance.data(), {tokens, value.shape(2)});
  const auto& projection = *dump.output_projection;
  Rounded<2> flat = projected(rows, rows_variance, projection.weight, projection.bias,
                              expected.arithmetic, dump.ran_in);
  const Extents<3> shape{value.shape(0), value.shape(1), projection.weight.shape(0)};
  Rounded<3> result = zeros<3>(shape);
  for (std::size_t i = 0; i < flat.value.elements().size(); ++i) {
    const double number = flat.value.elements()[i];
    result.value.elements()[i] = number;
    result.variance.elements()[i] =
        flat.variance.elements()[i] + output_variance(expected.arithmetic, number);
  }
  return result;
}

void allocate(const Dump& dump, Expected& expected) {
  const AttentionShape& shape = dump.shape;
  const Extents<4> context{shape.batch, shape.heads, shape.queries, shape.value_width};
  const Extents<4> pairs{shape.batch, shape.heads, shape.queries, shape.keys};
  const Extents<3> rows{shape.batch, shape.heads, shape.queries};
  expected.context = zeros<4>(context);
  expected.empty = Tensor<bool, 3>(rows);
  if (dump.weights) expected.weights = zeros<4>(pairs);
  if (dump.scores) {
    expected.scores = zeros<4>(pairs);
    fill(expected.scores->variance, kAnything);  // until a visible pair says otherwise
  }
  if (dump.log_sum_exp) {
    expected.log_sum_exp = zeros<3>(rows);
    fill(expected.log_sum_exp->variance, kAnything);
  }
  if (!dump.context_gradient) return;
  expected.query_gradient = zeros<4>(expected.entering.query.value.shape());
  expected.key_gradient = zeros<4>(expected.entering.key.value.shape());
  expected.value_gradient = zeros<4>(expected.entering.value.value.shape());
}

}  // namespace

Expected expected_results(const Dump& dump, DType stored_in) {
  Expected expected;
  expected.arithmetic = arithmetic_of(dump.ran_in, stored_in);
  expected.entering = entering(dump, expected.arithmetic);
  if (dump.has_heads) expected.inputs = projected_inputs(dump, expected.arithmetic);
  const auto inputs = oracle_inputs(dump, expected.entering);
  const AttentionPlan plan = validate_inputs("check", inputs);
  allocate(dump, expected);

  const Index group = std::max<Index>(plan.shape.group(), 1);
  // A sink takes all the weight of a row that sees no key: nothing is left to be a mean or not a number.
  const bool takes_all = dump.sink && dump.empty_row != EmptyRow::Any;
  const EmptyRow policy = takes_all ? EmptyRow::Zero : dump.empty_row;
  ExpectedHead one(plan.shape);
  for (Index b = 0; b < plan.shape.batch; ++b) {
    for (Index h = 0; h < plan.shape.heads; ++h) {
      reference::load_head(inputs, plan, b, h, one.head);
      one.query_variance = matrix_of(expected.entering.query.variance, b, h);
      one.key_variance = matrix_of(expected.entering.key.variance, b, h / group);
      one.value_variance = matrix_of(expected.entering.value.variance, b, h / group);
#pragma omp parallel for schedule(dynamic)
      for (Index t = 0; t < plan.shape.queries; ++t) {
        reference::match(inputs, plan, one.head, t, one.scores);
        const auto visible =
            one.scores.visible.elements().subspan(static_cast<std::size_t>(t * plan.shape.keys),
                                                  static_cast<std::size_t>(plan.shape.keys));
        if (std::find(visible.begin(), visible.end(), true) == visible.end()) {
          fill_empty_row(policy, one, t, expected);
          continue;
        }
        score_row(inputs, plan, dump.scores.has_value(), t, one, expected);
        fill_row(one, t, expected);
      }
      if (dump.context_gradient) add_gradient_variances(dump, inputs, plan, one, expected);
    }
  }
  if (dump.context_gradient) finish_gradients(dump, inputs, expected);
  free_unread_rows(dump, expected);
  if (dump.output_projection && dump.stage == OutStage::Projected) {
    expected.output = projected_context(dump, expected);
  }
  return expected;
}

}  // namespace qkv
