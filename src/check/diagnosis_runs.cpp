#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/rounding.h"
#include "check/diagnosis_parts.h"

namespace qkv {
namespace {

std::span<const double> second_run(const Evaluator& evaluator, const OutputRow& row) {
  const Dump& dump = evaluator.dump();
  const auto width = static_cast<std::size_t>(evaluator.width());
  if (evaluator.projected()) {
    return dump.second_output ? std::span{&(*dump.second_output)(row.b, row.t, 0), width}
                              : std::span<const double>{};
  }
  return dump.second_context ? std::span{&(*dump.second_context)(row.b, row.h, row.t, 0), width}
                             : std::span<const double>{};
}

}  // namespace

std::optional<Cause> cause_of_second_run(const Screen& screen, const Trial& intended) {
  const Evaluator& evaluator = screen.evaluator();
  double rows = 0;
  double unequal = 0;
  double wrong = 0;
  double noise = 0;     // Σ (out − intended)²
  double expected = 0;  // Σ p²·v²: what a dropout of rate ½ makes of it
  for (std::size_t i = 0; i < screen.rows().size(); ++i) {
    const OutputRow& row = screen.rows()[i];
    const auto second = second_run(evaluator, row);
    if (second.empty()) return std::nullopt;
    if (intended.rows.empty[i]) continue;
    const auto first = evaluator.recorded(row);
    double between = 0;
    for (std::size_t d = 0; d < first.size(); ++d) {
      const double unit = intended.rows.units(static_cast<Index>(i), static_cast<Index>(d));
      between = std::max(between, std::fabs(first[d] - second[d]) / unit);
    }
    ++rows;
    if (between > 20) ++unequal;
    if (screen.row_rms(intended, i) > 5) ++wrong;
    if (evaluator.projected()) continue;
    const std::vector<double> weights = evaluator.weights({}, row);
    const Dump& dump = evaluator.dump();
    const Index head = row.h / dump.shape.group();
    for (std::size_t d = 0; d < first.size(); ++d) {
      const double error =
          first[d] - intended.rows.values(static_cast<Index>(i), static_cast<Index>(d));
      noise += error * error;
      for (std::size_t s = 0; s < weights.size(); ++s) {
        const double term = weights[s] == 0
                                ? 0
                                : weights[s] * dump.value(row.b, head, static_cast<Index>(s),
                                                          static_cast<Index>(d));
        expected += term * term;
      }
    }
  }
  // A race spoils some rows of one run; dropout spoils nearly all of both.
  if (rows == 0 || unequal < 0.3 * rows || wrong < 0.3 * rows) return std::nullopt;
  Cause cause{
      {"D1"}, "dropout is active: two runs on the same inputs differ in most rows", {}, {}, false};
  if (expected > 0 && std::isfinite(noise)) {
    const double ratio = noise / expected;  // r / (1 − r)
    cause.parameters["rate"] = ratio / (1 + ratio);
  }
  return cause;
}

std::optional<Cause> cause_of_log_sum_exp(const Evaluator& evaluator, const Variant& variant,
                                          const std::vector<OutputRow>& rows) {
  const Dump& dump = evaluator.dump();
  if (!dump.log_sum_exp) return std::nullopt;
  const double roundoff = unit_roundoff(dump.ran_in);
  const double right = dump.log_sum_exp_base2 ? std::numbers::log2e : 1.0;
  const double other = dump.log_sum_exp_base2 ? 1.0 : std::numbers::log2e;
  double of_right = 0;
  double of_other = 0;
  double count = 0;
  for (const OutputRow& row : rows) {
    const double recorded = (*dump.log_sum_exp)(row.b, row.h, row.t);
    const double natural = evaluator.log_sum_exp(variant, row);
    if (!std::isfinite(recorded) || !std::isfinite(natural)) continue;
    const double unit = roundoff * (1 + 4 * std::fabs(natural));
    of_right = std::max(of_right, std::fabs(recorded - right * natural) / unit);
    of_other = std::max(of_other, std::fabs(recorded - other * natural) / unit);
    ++count;
  }
  if (count == 0 || of_right < 6 * std::max(1.0, of_other) || of_other * roundoff > 0.02) {
    return std::nullopt;
  }
  return Cause{{"N2"},
               dump.log_sum_exp_base2 ? "the log-sum-exp is to base e where base 2 is meant"
                                      : "the log-sum-exp is to base 2 where base e is meant",
               {{"lse_base", dump.log_sum_exp_base2 ? std::numbers::e : 2.0}},
               {of_other, of_other},
               false};
}

}  // namespace qkv
