#include "explain/judgement.h"

#include <algorithm>
#include <cmath>

#include "explain/agreement.h"

namespace qkv::explain {
namespace {

/// Of what all candidates together change.
constexpr double kTrifle = 0.05;

}  // namespace

Judgement judge(const FaithSetup& setup, std::span<const double> scores, const Faith& faith,
                const RandomBaseline& random) {
  Judgement result;
  result.faster_than = std::ranges::count_if(random.curves, [&](const Curves& curves) {
    return curves.deletion.area > faith.deletion_area;
  });
  if (setup.candidates.empty()) return result;
  const auto fall = [&](Index token) {
    return setup.intervention[static_cast<std::size_t>(token)];
  };
  result.pointed = ranking(scores, setup.candidates).front();
  result.decisive = ranking(setup.intervention, setup.candidates).front();
  result.pointed_fall = fall(result.pointed);
  result.decisive_fall = fall(result.decisive);
  double sum = 0;
  for (const Index token : setup.candidates) {
    sum += std::fabs(scores[static_cast<std::size_t>(token)]);
  }
  if (sum > 0) {
    result.decisive_share = std::fabs(scores[static_cast<std::size_t>(result.decisive)]) / sum;
  }
  if (result.decisive_fall <= kTrifle * std::fabs(setup.target - setup.baseline)) return result;
  result.verdict =
      result.pointed_fall < 0.5 * result.decisive_fall ? Verdict::Misleads : Verdict::Agrees;
  return result;
}

}  // namespace qkv::explain
