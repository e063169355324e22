#include "check/pairs.h"

#include <algorithm>

#include "check/fit.h"

namespace qkv {
namespace {

/// Rows that decide about a pair at the first glance: the cost of all pairs is theirs.
constexpr std::size_t kGlance = 2;

bool compatible(const Hypothesis& a, const Hypothesis& b) { return (a.touches & b.touches) == 0; }

}  // namespace

std::vector<Explanation> promising_pairs(const Catalogue& catalogue, const Screen& few,
                                         const std::function<void(double)>& progress) {
  const Evaluator& evaluator = few.evaluator();
  const DType ran_in = evaluator.dump().ran_in;
  std::vector<OutputRow> first;
  const std::size_t step = std::max<std::size_t>(1, few.rows().size() / kGlance);
  for (std::size_t i = 0; i < few.rows().size(); i += step) first.push_back(few.rows()[i]);
  const Screen glance(evaluator, first);

  std::vector<const Hypothesis*> discrete;
  for (const Hypothesis& hypothesis : catalogue.hypotheses) {
    if (!hypothesis.free) discrete.push_back(&hypothesis);
  }
  std::vector<Explanation> found;
  const auto count = static_cast<Index>(discrete.size());
  const bool worth = glance.products() * static_cast<double>(count * count / 2) > kWorthThreads;
  Index done = 0;
#pragma omp parallel for schedule(dynamic) if (worth)
  for (Index i = 0; i < count; ++i) {
    for (Index j = i + 1; j < count; ++j) {
      const Hypothesis& a = *discrete[static_cast<std::size_t>(i)];
      const Hypothesis& b = *discrete[static_cast<std::size_t>(j)];
      if (!compatible(a, b)) continue;
      const Variant variant = b.variant(a.variant());
      if (evaluator.cost(variant) > 64) continue;
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

}  // namespace qkv
