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
                                         const Screen& more,
                                         const std::vector<Explanation>& singles,
                                         const std::function<void(double)>& progress) {
  static_cast<void>(singles);
  static_cast<void>(more);
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
  for (std::size_t i = 0; i < discrete.size(); ++i) {
    progress(static_cast<double>(i) / static_cast<double>(discrete.size()));
    for (std::size_t j = i + 1; j < discrete.size(); ++j) {
      const Hypothesis& a = *discrete[i];
      const Hypothesis& b = *discrete[j];
      if (!compatible(a, b)) continue;
      const Variant variant = b.variant(a.variant());
      if (evaluator.cost(variant) > 64) continue;
      const Trial trial = glance.trial_with_policy(variant);
      if (trial.distance.rms > 4 * rms_tolerance(ran_in)) continue;
      found.push_back({{a, b}, trial});
      found.back().trial.variant = variant;
    }
  }
  return found;
}

}  // namespace qkv
