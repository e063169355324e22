#include "check/verdict.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>

namespace qkv {
namespace {

constexpr double kChance = 1e-6;
constexpr Index kRowBlocks = 16;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Squares of units over one part.
struct Part {
  double squares = 0;
  Index compared = 0;
  Index rows = 0;  ///< that differ: elements of a row share the errors of its scores

  double rms() const {
    return compared == 0 ? 0 : std::sqrt(squares / static_cast<double>(compared));
  }
};

/// Error in units; negative where anything goes.
double units_of(double got, double expected, double variance, double largest) {
  if (!(variance < kInfinity)) return -1;
  if (std::isnan(expected)) return std::isnan(got) ? 0 : kInfinity;
  const bool overflows = std::fabs(expected) > largest * (1 - 0x1p-8);
  if (overflows && std::isinf(got) && (got > 0) == (expected > 0)) return 0;
  if (got == expected) return 0;
  const double difference = std::fabs(got - expected);
  return std::isfinite(difference) ? difference / std::sqrt(variance) : kInfinity;
}

struct Compared {
  std::string name;
  TensorView<const double, 4> got;
  TensorView<const double, 4> expected;
  TensorView<const double, 4> variance;
  std::string row_axis = "row block";
};

/// Groups of one kind: sample, head, both, blocks of rows, columns.
struct Grouping {
  std::string axis;
  Index count = 0;
  std::function<Index(Index, Index, Index, Index)> index;
  std::function<WrongPart(Index)> range;
};

std::vector<Grouping> groupings(const Compared& one) {
  const auto [batch, heads, rows, width] = one.got.shape();
  const Index block = std::max<Index>(1, (rows + kRowBlocks - 1) / kRowBlocks);
  const auto single = [](Index i) { return WrongPart{{}, i, i + 1, 0, 0}; };
  std::vector<Grouping> result;
  result.push_back({"sample", batch, [](Index b, Index, Index, Index) { return b; }, single});
  if (heads > 1) {
    result.push_back({"head", heads, [](Index, Index h, Index, Index) { return h; }, single});
    result.push_back({"sample and head", batch * heads,
                      [heads = heads](Index b, Index h, Index, Index) { return b * heads + h; },
                      single});
  }
  result.push_back({one.row_axis, (rows + block - 1) / block,
                    [block](Index, Index, Index t, Index) { return t / block; },
                    [block, rows = rows](Index i) {
                      return WrongPart{{}, i * block, std::min(rows, (i + 1) * block), 0, 0};
                    }});
  result.push_back({"column", width, [](Index, Index, Index, Index d) { return d; }, single});
  return result;
}

/// Rows without a key all give the same under one policy, and so do equal queries: their errors are one.
bool repeats_the_row_before(const TensorView<const double, 4>& expected, Index b, Index h,
                            Index t) {
  if (t == 0) return false;
  for (Index d = 0; d < expected.shape(3); ++d) {
    if (expected(b, h, t, d) != expected(b, h, t - 1, d)) return false;
  }
  return true;
}

void judge_parts(const Compared& one, double margin, TensorVerdict& verdict) {
  const auto& units = verdict.map.units;
  const auto [batch, heads, rows, width] = units.shape();
  const auto kinds = groupings(one);
  Index count = 1;
  for (const Grouping& kind : kinds) count += kind.count;
  const auto judge_part = [&](const Part& part) {
    return margin * rms_of_rounding(part.rows, count);
  };
  Part whole;
  std::vector<std::vector<Part>> parts(kinds.size());
  std::vector<std::vector<Index>> last_row(kinds.size());
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    parts[k].resize(static_cast<std::size_t>(kinds[k].count));
    last_row[k].assign(static_cast<std::size_t>(kinds[k].count), -1);
  }
  for (Index b = 0; b < batch; ++b) {
    for (Index h = 0; h < heads; ++h) {
      for (Index t = 0; t < rows; ++t) {
        const Index row = (b * heads + h) * rows + t;
        bool counted = repeats_the_row_before(one.expected, b, h, t);
        const bool repeated = counted;
        for (Index d = 0; d < width; ++d) {
          const auto error = static_cast<double>(units(b, h, t, d));
          if (error < 0) continue;
          const double square = error * error;
          whole.squares += square;
          ++whole.compared;
          whole.rows += counted ? 0 : 1;
          counted = true;
          for (std::size_t k = 0; k < kinds.size(); ++k) {
            const auto i = static_cast<std::size_t>(kinds[k].index(b, h, t, d));
            Part& part = parts[k][i];
            part.squares += square;
            ++part.compared;
            if (last_row[k][i] != row && !repeated) ++part.rows;
            last_row[k][i] = row;
          }
        }
      }
    }
  }
  verdict.rms_units = whole.rms();
  verdict.rms_allowed = judge_part(whole);
  verdict.matches &= verdict.rms_units <= verdict.rms_allowed;
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    for (std::size_t i = 0; i < parts[k].size(); ++i) {
      const double allowed = judge_part(parts[k][i]);
      if (parts[k][i].rms() <= allowed) continue;
      WrongPart wrong = kinds[k].range(static_cast<Index>(i));
      wrong.axis = kinds[k].axis;
      wrong.rms_units = parts[k][i].rms();
      wrong.rms_allowed = allowed;
      verdict.wrong_parts.push_back(wrong);
      verdict.matches = false;
    }
  }
}

TensorVerdict judge_tensor(const Compared& one, const Arithmetic& arithmetic) {
  const bool is_16_bit = arithmetic.storage > arithmetic.compute;
  const double margin = is_16_bit ? kMarginOf16Bits : kMarginOfWide;
  TensorVerdict verdict;
  verdict.name = one.name;
  verdict.map.units = Tensor<float, 4>(one.got.shape());
  const auto [batch, heads, rows, width] = one.got.shape();
  double largest = -1;
  for (Index b = 0; b < batch; ++b) {
    for (Index h = 0; h < heads; ++h) {
      for (Index t = 0; t < rows; ++t) {
        for (Index d = 0; d < width; ++d) {
          const double got = one.got(b, h, t, d);
          const double expected = one.expected(b, h, t, d);
          const double units =
              units_of(got, expected, one.variance(b, h, t, d), arithmetic.output_largest);
          verdict.map.units(b, h, t, d) = static_cast<float>(units);
          if (units < 0) continue;
          ++verdict.compared;
          const double error = std::fabs(got - expected);
          if (std::isinf(units) && !std::isfinite(error)) ++verdict.not_finite;
          if (std::isfinite(error)) verdict.largest_error = std::max(verdict.largest_error, error);
          if (units <= largest) continue;
          largest = units;
          verdict.largest_at = {b, h, t, d};
        }
      }
    }
  }
  verdict.largest_units = std::max(largest, 0.0);
  verdict.largest_allowed = margin * largest_of_rounding(verdict.compared);
  for (const float units : verdict.map.units.elements()) {
    if (static_cast<double>(units) > verdict.largest_allowed) ++verdict.beyond;
  }
  verdict.matches = verdict.beyond == 0;
  judge_parts(one, margin, verdict);
  return verdict;
}

/// Rank 3 as rank 4, with an axis of extent 1 at `axis`.
TensorView<const double, 4> with_axis(const Tensor<double, 3>& tensor, int axis) {
  Extents<4> shape{};
  for (int i = 0, j = 0; i < 4; ++i) {
    shape[static_cast<std::size_t>(i)] = i == axis ? 1 : tensor.shape(j++);
  }
  return {tensor.data(), shape};
}

Compared compared(std::string name, const Tensor<double, 4>& got, const Rounded<4>& expected) {
  return {std::move(name), got.view(), expected.value.view(), expected.variance.view()};
}

Compared compared(std::string name, const Tensor<double, 3>& got, const Rounded<3>& expected,
                  int axis) {
  return {std::move(name), with_axis(got, axis), with_axis(expected.value, axis),
          with_axis(expected.variance, axis)};
}

/// lse to the base that the dump has.
Rounded<3> in_base_2(const Rounded<3>& natural) {
  Rounded<3> result = natural;
  for (double& value : result.value.elements()) value /= std::log(2.0);
  for (double& variance : result.variance.elements()) variance /= std::log(2.0) * std::log(2.0);
  return result;
}

}  // namespace

double largest_of_rounding(Index count) {
  // P(|x| > a) < 2·exp(−a²/2) for each.
  return std::sqrt(2 * std::log(2 * static_cast<double>(std::max<Index>(count, 1)) / kChance));
}

double rms_of_rounding(Index independent, Index parts) {
  // Laurent and Massart, "Adaptive Estimation of a Quadratic Functional" (2000), lemma 1.
  const double x = std::log(static_cast<double>(std::max<Index>(parts, 1)) / kChance);
  const auto n = static_cast<double>(std::max<Index>(independent, 1));
  return std::sqrt(1 + 2 * std::sqrt(x / n) + 2 * x / n);
}

const TensorVerdict& Verdict::worst() const {
  const auto wrong = std::find_if(tensors.begin(), tensors.end(),
                                  [](const TensorVerdict& one) { return !one.matches; });
  return wrong == tensors.end() ? tensors.front() : *wrong;
}

Verdict judge(const Dump& dump, DType stored_in) {
  Verdict verdict;
  verdict.expected = expected_results(dump, stored_in);
  const Expected& expected = verdict.expected;
  std::vector<Compared> all;
  if (dump.output) all.push_back(compared("out", *dump.output, *expected.output, 1));
  if (dump.context) all.push_back(compared("out", *dump.context, expected.context));
  if (dump.second_output) all.push_back(compared("out2", *dump.second_output, *expected.output, 1));
  if (dump.second_context) all.push_back(compared("out2", *dump.second_context, expected.context));
  if (expected.inputs) {
    all.push_back(compared("q", dump.query, expected.inputs->query));
    all.push_back(compared("k", dump.key, expected.inputs->key));
    all.push_back(compared("v", dump.value, expected.inputs->value));
  }
  if (dump.scores) all.push_back(compared("scores", *dump.scores, *expected.scores));
  if (dump.weights) all.push_back(compared("weights", *dump.weights, *expected.weights));
  Rounded<3> lse;
  if (dump.log_sum_exp) {
    lse = dump.log_sum_exp_base2 ? in_base_2(*expected.log_sum_exp) : *expected.log_sum_exp;
    all.push_back(compared("lse", *dump.log_sum_exp, lse, 3));
  }
  if (dump.query_gradient) {
    all.push_back(compared("dq", *dump.query_gradient, *expected.query_gradient));
    all.push_back(compared("dk", *dump.key_gradient, *expected.key_gradient));
    all.push_back(compared("dv", *dump.value_gradient, *expected.value_gradient));
  }
  for (const Compared& one : all) {
    verdict.tensors.push_back(judge_tensor(one, expected.arithmetic));
    verdict.matches &= verdict.tensors.back().matches;
  }
  return verdict;
}

}  // namespace qkv
