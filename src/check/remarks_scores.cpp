// What recorded scores and weights show.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/rounding.h"
#include "check/remarks_parts.h"

namespace qkv {
namespace {

/// exp of less is 0 in float64 and in every smaller dtype.
constexpr double kUnderflow = -746;

}  // namespace

std::vector<OutputRow> Remarks::read_head_rows() const {
  const AttentionShape& shape = dump_.shape;
  std::vector<OutputRow> rows;
  for (Index b = 0; b < shape.batch; ++b) {
    for (Index h = 0; h < shape.heads; ++h) {
      for (Index t = 0; t < shape.queries; ++t) {
        if (!dump_.read_rows || (*dump_.read_rows)(b, t)) rows.push_back({b, h, t});
      }
    }
  }
  return rows;
}

double Remarks::recorded_sum(const OutputRow& row) const {
  double sum = 0;
  for (Index s = 0; s < dump_.shape.keys; ++s) sum += (*dump_.weights)(row.b, row.h, row.t, s);
  return sum;
}

double Remarks::sum_allowed() const {
  return 8 * unit_roundoff(dump_.ran_in) * std::sqrt(static_cast<double>(dump_.shape.keys) + 1);
}

void Remarks::hidden_scores() {
  if (!dump_.scores || !dump_.weights || dump_.sink) return;
  std::size_t ordinary = 0;
  std::size_t filled = 0;
  double highest_fill = -std::numeric_limits<double>::infinity();
  for (const OutputRow& row : evenly(read_head_rows())) {
    const std::vector<double> meant = evaluator_.weights({}, row);
    double sum = 0;
    double highest = -std::numeric_limits<double>::infinity();
    for (std::size_t s = 0; s < meant.size(); ++s) {
      if (!(meant[s] > 0)) continue;
      sum += (*dump_.weights)(row.b, row.h, row.t, static_cast<Index>(s));
      highest = std::max(highest, (*dump_.scores)(row.b, row.h, row.t, static_cast<Index>(s)));
    }
    if (!std::isfinite(highest)) continue;
    if (!(std::fabs(sum - 1) <= sum_allowed())) return;
    for (std::size_t s = 0; s < meant.size(); ++s) {
      if (meant[s] > 0) continue;
      const auto key = static_cast<Index>(s);
      if ((*dump_.weights)(row.b, row.h, row.t, key) != 0) return;
      const double score = (*dump_.scores)(row.b, row.h, row.t, key);
      if (!std::isfinite(score)) continue;
      if (score - highest < kUnderflow) {
        ++filled;
        highest_fill = std::max(highest_fill, score);
      } else if (std::exp(score - highest) > 0x1p-24) {
        ++ordinary;
      }
    }
  }
  if (ordinary > 0) {
    say(fmt::format(
        "The recorded scores of {} hidden pairs are ordinary numbers; their weights are 0 and "
        "each row's others sum to 1. A mask after the softmax is right where the weights are "
        "renormalised, as these are.",
        ordinary));
  }
  if (filled > 0) {
    say(fmt::format(
        "Hidden pairs have finite scores, {:.4g} at most, instead of −∞: so far below the "
        "others of their rows that their weights are 0.",
        highest_fill));
  }
}

void Remarks::shifted_scores() {
  if (!dump_.scores || dump_.sink || dump_.softcap) return;
  const double roundoff = unit_roundoff(dump_.ran_in);
  std::size_t shifted = 0;
  double largest = 0;
  for (const OutputRow& row : evenly(read_head_rows())) {
    const std::vector<double> meant = evaluator_.weights({}, row);
    const double lse = evaluator_.log_sum_exp({}, row);
    double least = std::numeric_limits<double>::infinity();
    double most = -least;
    double magnitude = 1;
    std::size_t count = 0;
    for (std::size_t s = 0; s < meant.size(); ++s) {
      if (!(meant[s] > 1e-30)) continue;
      const double score = std::log(meant[s]) + lse;
      const double recorded = (*dump_.scores)(row.b, row.h, row.t, static_cast<Index>(s));
      least = std::min(least, recorded - score);
      most = std::max(most, recorded - score);
      magnitude = std::max({magnitude, std::fabs(score), std::fabs(recorded)});
      ++count;
    }
    if (count < 2) continue;
    const double noise = 16 * roundoff * magnitude;
    if (!(most - least <= noise)) return;
    if (std::fabs(least) <= 4 * noise) continue;
    ++shifted;
    largest = std::max(largest, std::fabs(least));
  }
  if (shifted == 0) return;
  say(fmt::format(
      "The recorded scores of {} rows differ from those meant by one number a row, up to {:.3g}: "
      "the softmax forgets it. (A key bias, ALiBi as slope · s and a subtracted maximum do "
      "that.)",
      shifted, largest));
}

void Remarks::sink_share() {
  if (!dump_.sink || !dump_.weights) return;
  double least = std::numeric_limits<double>::infinity();
  double most = -least;
  const double allowed = sum_allowed();
  for (const OutputRow& row : evenly(read_head_rows())) {
    const std::vector<double> weights = evaluator_.weights({}, row);
    const double sum = recorded_sum(row);
    if (!(std::fabs(sum - std::accumulate(weights.begin(), weights.end(), 0.0)) <= allowed)) {
      return;
    }
    least = std::min(least, sum);
    most = std::max(most, sum);
  }
  if (!(least < 1 - 100 * allowed)) return;
  say(fmt::format(
      "The recorded weights of the rows sum to {:.3g} to {:.3g}: the sink takes the rest.", least,
      most));
}

}  // namespace qkv
