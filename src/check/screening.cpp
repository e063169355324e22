#include "check/screening.h"

#include <algorithm>
#include <cmath>

namespace qkv {
namespace {

/// Distance of two numbers in units; two that are the same infinity, or both not a number, agree.
double apart(double a, double b, double unit) {
  if (std::isnan(a) && std::isnan(b)) return 0;
  if (a == b) return 0;
  const double z = (a - b) / unit;
  return std::isnan(z) ? Screen::kFarthest : std::clamp(z, -Screen::kFarthest, Screen::kFarthest);
}

}  // namespace

double rms_tolerance(DType ran_in) {
  return ran_in == DType::Float64 || ran_in == DType::Float32 ? 4 : 2;
}

double max_tolerance(DType ran_in) {
  return ran_in == DType::Float64 || ran_in == DType::Float32 ? 40 : 12;
}

void Screen::measure(Trial& trial, std::span<const OutputRow> rows) const {
  double sum = 0;
  double logarithms = 0;
  double left = 0;
  double total = 0;
  double finite = 0;
  const Index width = trial.rows.values.shape(1);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto recorded = evaluator_.recorded(rows[i]);
    for (Index d = 0; d < width; ++d) {
      const auto row = static_cast<Index>(i);
      const double got = recorded[static_cast<std::size_t>(d)];
      const double value = trial.rows.values(row, d);
      const double unit = trial.rows.units(row, d);
      const double z = std::fabs(apart(got, value, unit));
      sum += z * z;
      trial.distance.max = std::max(trial.distance.max, z);
      if (!std::isfinite(got) || !std::isfinite(value)) continue;
      ++finite;
      logarithms += std::log(std::max(unit, 1e-300));
      left += (got - value) * (got - value);
      total += got * got;
    }
  }
  const double count = static_cast<double>(rows.size()) * static_cast<double>(width);
  trial.distance.rms = count == 0 ? 0 : std::sqrt(sum / count);
  trial.score =
      std::log(std::max(trial.distance.rms, 1e-6)) + (finite > 0 ? logarithms / finite : 0);
  trial.unexplained = left > 0 ? left / std::max(total, 1e-300) : 0;
}

double Screen::products() const {
  const AttentionShape& shape = evaluator_.dump().shape;
  return static_cast<double>(rows_.size()) * evaluator_.cost({}) *
         static_cast<double>(shape.keys * (shape.key_width + 2 * shape.value_width));
}

Trial Screen::trial(const Variant& variant) const {
  Trial trial{variant, evaluator_.rows(variant, rows_), {}};
  measure(trial, rows_);
  return trial;
}

Trial Screen::trial_with_policy(const Variant& variant) const {
  Trial first = trial(variant);
  std::vector<OutputRow> empty;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (first.rows.empty[i]) empty.push_back(rows_[i]);
  }
  if (empty.empty()) return first;
  Variant best = variant;
  const Screen screen(evaluator_, empty);
  double nearest = screen.trial(variant).distance.rms;
  for (const EmptyPolicy policy :
       {EmptyPolicy::Zero, EmptyPolicy::NaN, EmptyPolicy::Mean, EmptyPolicy::AddedLowest,
        EmptyPolicy::AddedLowestFloat32, EmptyPolicy::MeanOfRest, EmptyPolicy::Softmax,
        EmptyPolicy::SoftmaxOfRest}) {
    Variant other = variant;
    other.empty = policy;
    const double rms = screen.trial(other).distance.rms;
    if (rms < nearest * 0.99) {
      nearest = rms;
      best = other;
    }
  }
  return best.empty == variant.empty ? first : trial(best);
}

Contest Screen::contest(const Trial& first, const Trial& second,
                        const std::vector<bool>& left_out) const {
  Contest contest;
  double square = 0;
  double product = 0;
  const Index width = first.rows.values.shape(1);
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (!left_out.empty() && left_out[i]) continue;
    const auto recorded = evaluator_.recorded(rows_[i]);
    for (Index d = 0; d < width; ++d) {
      const auto row = static_cast<Index>(i);
      const double a = first.rows.values(row, d);
      const double b = second.rows.values(row, d);
      const double unit = first.rows.units(row, d);
      const double between = apart(b, a, unit);
      const double z = apart(recorded[static_cast<std::size_t>(d)], a, unit);
      square += between * between;
      product += between * z;
      contest.largest = std::max(contest.largest, std::fabs(between));
    }
  }
  contest.difference = std::sqrt(square);
  contest.place = square > 0 ? product / square : 0;
  return contest;
}

double Screen::row_rms(const Trial& trial, std::size_t row) const {
  const auto recorded = evaluator_.recorded(rows_[row]);
  double sum = 0;
  for (std::size_t d = 0; d < recorded.size(); ++d) {
    const auto i = static_cast<Index>(row);
    const auto j = static_cast<Index>(d);
    const double z = apart(recorded[d], trial.rows.values(i, j), trial.rows.units(i, j));
    sum += z * z;
  }
  return std::sqrt(sum / static_cast<double>(recorded.size()));
}

}  // namespace qkv
