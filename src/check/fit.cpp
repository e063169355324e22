#include "check/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace qkv {
namespace {

class Fit {
 public:
  Fit(const Hypothesis& hypothesis, const Variant& base, bool coarsely)
      : hypothesis_(hypothesis),
        free_(*hypothesis.free),
        grid_(coarsely ? free_.coarse_grid() : free_.grid),
        base_(base) {}

  Variant variant(double value) const {
    Variant result = hypothesis_.variant(base_);
    free_.set(result, value);
    return result;
  }

  /// The best values of the grid, the best first.
  std::vector<double> coarse(const Screen& screen, std::size_t count) const {
    std::vector<std::pair<double, double>> tried(grid_.size());
    const auto values = static_cast<Index>(tried.size());
    const bool worth = screen.products() * static_cast<double>(values) > kWorthThreads;
#pragma omp parallel for schedule(dynamic) if (worth)
    for (Index i = 0; i < values; ++i) {
      const double value = grid_[static_cast<std::size_t>(i)];
      tried[static_cast<std::size_t>(i)] = {screen.trial(variant(value)).score, value};
    }
    const std::size_t kept = std::min(count, tried.size());
    std::partial_sort(tried.begin(), tried.begin() + static_cast<std::ptrdiff_t>(kept),
                      tried.end());
    std::vector<double> best;
    for (std::size_t i = 0; i < kept; ++i) best.push_back(tried[i].second);
    return best;
  }

  /// Gauss–Newton from `value`, with the derivative by a difference.
  std::pair<double, Trial> refine(const Screen& screen, double value) const {
    Trial best = screen.trial(variant(value));
    for (int step = 0; step < 30; ++step) {
      const double small = 1e-6 * std::max(std::fabs(value), 1e-6);
      const Contest contest = screen.contest(best, screen.trial(variant(value + small)));
      if (contest.difference == 0 || !std::isfinite(contest.place)) break;
      double change = contest.place * small;
      const double limit =
          free_.logarithmic ? 0.5 * std::fabs(value) : std::max(1.0, 0.5 * std::fabs(value));
      change = std::clamp(change, -limit, limit);
      bool better = false;
      for (int half = 0; half < 12; ++half, change /= 2) {
        Trial trial = screen.trial(variant(value + change));
        if (!(trial.score < best.score)) continue;
        better = trial.score < best.score - 1e-3;
        value += change;
        best = std::move(trial);
        break;
      }
      if (!better) break;
    }
    return {value, std::move(best)};
  }

  const FreeParameter& free() const noexcept { return free_; }

 private:
  const Hypothesis& hypothesis_;
  const FreeParameter& free_;
  std::vector<double> grid_;
  Variant base_;
};

/// A round number within a ten-thousandth that is as near to the dump, or the value itself.
double rounded(const Fit& fit, const Screen& screen, double value, double score) {
  for (const int digits : {1, 2, 3, 4}) {
    const double round = std::stod(fmt::format("{:.{}g}", value, digits));
    if (round == value || std::fabs(round - value) > 1e-2 * std::fabs(value)) continue;
    if (screen.trial(fit.variant(round)).score <= score + 0.02) return round;
  }
  return value;
}

}  // namespace

std::optional<Hypothesis> fit(const Hypothesis& hypothesis, const Variant& base, const Screen& few,
                              const Screen& more, bool coarsely) {
  const Fit fit(hypothesis, base, coarsely);
  // Long grids are for one or two rows.
  std::vector<OutputRow> first = few.rows();
  if (fit.free().grid.size() > 200 && first.size() > 2) first.resize(2);
  const Screen glance(few.evaluator(), first);
  const std::size_t kept = fit.free().integer ? (coarsely ? 1 : 6) : 3;
  const std::vector<double> starts = fit.coarse(glance, kept);
  if (starts.empty()) return std::nullopt;
  double best = starts.front();
  double nearest = std::numeric_limits<double>::infinity();
  for (const double start : starts) {
    const auto [value, trial] = fit.free().integer
                                    ? std::pair{start, more.trial(fit.variant(start))}
                                    : fit.refine(more, start);
    if (trial.score < nearest) {
      nearest = trial.score;
      best = value;
    }
  }
  if (!fit.free().integer) best = rounded(fit, more, best, nearest);
  Hypothesis fixed = hypothesis;
  fixed.parameters[fit.free().name] = best;
  fixed.text += fmt::format(": {} = {:.6g}", fit.free().name, best);
  fixed.apply = [apply = hypothesis.apply, set = fit.free().set, best](Variant& v) {
    apply(v);
    set(v, best);
  };
  fixed.free.reset();
  fixed.fitted = true;
  return fixed;
}

}  // namespace qkv
