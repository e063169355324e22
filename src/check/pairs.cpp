#include "check/pairs.h"

#include <algorithm>
#include <cmath>

#include "check/fit.h"

namespace qkv {
namespace {

/// Rows that decide about a pair at the first glance: the cost of all pairs is theirs.
constexpr std::size_t kGlance = 2;

/// Multiplications that one pair may take.
constexpr double kDear = 2e7;
/// Those that all pairs with a free parameter may take.
constexpr double kFits = 4e10;

bool compatible(const Hypothesis& a, const Hypothesis& b) { return (a.touches & b.touches) == 0; }

Screen first_glance(const Screen& few) {
  std::vector<OutputRow> first;
  const std::size_t step = std::max<std::size_t>(1, few.rows().size() / kGlance);
  for (std::size_t i = 0; i < few.rows().size(); i += step) first.push_back(few.rows()[i]);
  return {few.evaluator(), first};
}

}  // namespace

std::vector<Explanation> promising_pairs(const Catalogue& catalogue, const Screen& few,
                                         const std::function<void(double)>& progress) {
  const Evaluator& evaluator = few.evaluator();
  const DType ran_in = evaluator.dump().ran_in;
  const Screen glance = first_glance(few);

  std::vector<const Hypothesis*> discrete;
  for (const Hypothesis& hypothesis : catalogue.hypotheses) {
    if (!hypothesis.free) discrete.push_back(&hypothesis);
  }
  const double products = glance.products() / evaluator.cost({});
  std::vector<Explanation> found;
  const auto count = static_cast<Index>(discrete.size());
  const auto number = static_cast<double>(count);
  const bool worth = glance.products() * number * number / 2 > kWorthThreads;
  Index done = 0;
#pragma omp parallel for schedule(dynamic) if (worth)
  for (Index i = 0; i < count; ++i) {
    for (Index j = i + 1; j < count; ++j) {
      const Hypothesis& a = *discrete[static_cast<std::size_t>(i)];
      const Hypothesis& b = *discrete[static_cast<std::size_t>(j)];
      if (!compatible(a, b)) continue;
      const Variant variant = b.variant(a.variant());
      if (evaluator.cost(variant) * products > kDear) continue;
      Trial trial = glance.trial_with_policy(variant);
      if (trial.distance.rms > 4 * rms_tolerance(ran_in) || trial.unexplained > 0.1) continue;
      trial.variant = variant;
#pragma omp critical(qkv_promising_pairs)
      found.push_back({{a, b}, std::move(trial)});
    }
#pragma omp critical(qkv_promising_pairs)
    progress(static_cast<double>(++done) / static_cast<double>(count));
  }
  return found;
}

std::vector<Explanation> fitted_pairs(const Catalogue& catalogue,
                                      const std::vector<Hypothesis>& nearest, const Screen& few,
                                      const std::function<void(double)>& progress) {
  const Screen glance = first_glance(few);
  const Evaluator& evaluator = few.evaluator();
  const DType ran_in = evaluator.dump().ran_in;
  std::vector<const Hypothesis*> free;
  double values = 0;
  for (const Hypothesis& hypothesis : catalogue.hypotheses) {
    if (!hypothesis.free || hypothesis.free->grid.empty()) continue;
    free.push_back(&hypothesis);
    values += static_cast<double>(hypothesis.free->coarse_grid().size());
  }
  const double one = glance.products() * values;
  const auto count = static_cast<Index>(
      std::min(static_cast<double>(nearest.size()), std::ceil(kFits / std::max(one, 1.0))));
  std::vector<Explanation> found;
  Index done = 0;
  const bool worth = one * static_cast<double>(count) > kWorthThreads;
#pragma omp parallel for schedule(dynamic) if (worth)
  for (Index i = 0; i < count; ++i) {
    const Hypothesis& fixed = nearest[static_cast<std::size_t>(i)];
    // Rows that it leaves without a key would hide what the parameter does.
    const Variant base = few.trial_with_policy(fixed.variant()).variant;
    for (const Hypothesis* open : free) {
      if (!compatible(fixed, *open) || evaluator.cost(base) > 64) continue;
      const auto fitted = fit(*open, base, glance, glance, true);
      if (!fitted) continue;
      Trial trial = glance.trial_with_policy(fitted->variant(base));
      if (trial.distance.rms > 10 * rms_tolerance(ran_in) || trial.unexplained > 0.1) continue;
      const auto refined = fit(*open, base, few, few, true);
      trial.variant = refined->variant(base);
#pragma omp critical(qkv_fitted_pairs)
      found.push_back({{fixed, *refined}, std::move(trial)});
    }
#pragma omp critical(qkv_fitted_pairs)
    progress(static_cast<double>(++done) / static_cast<double>(count));
  }
  return found;
}

}  // namespace qkv
