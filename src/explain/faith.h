// Tests of an attribution: what it calls important is taken away, and the target is watched. Sources, apart from those below: Petsiuk,
// Das and Saenko, "RISE" (2018) for deletion and insertion; DeYoung et al., "ERASER" (2020) for comprehensiveness and sufficiency.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "explain/occlusion.h"

namespace qkv::explain {

/// The target while tokens are taken away, the most important first, or put back into a text without any.
struct Curve {
  std::vector<double> part;    ///< of the candidates: 0 to 1
  std::vector<double> target;  ///< as many
  double area = 0;             ///< under the line through them, over part
};

struct Curves {
  Curve deletion;   ///< falls fast where the attribution is right: a small area
  Curve insertion;  ///< rises fast: a large one
  /// Mean fall of the target without the first 10, 20 and 50 % of the candidates (1 at least): large is good.
  double comprehensiveness = 0;
  /// Mean fall of the target with only these: small is good.
  double sufficiency = 0;
};

/// Areas, comprehensiveness and sufficiency of curves whose points are there, or were changed.
void summarise(Curves& curves);

/// `order`: candidates(model.text()) by falling importance. A point a token, twenty steps where there are more tokens.
Curves curves(const ExplainedModel& model, std::span<const Index> order, Occlusion how,
              const Progress& progress = {});

/// How well sums of scores foretell falls of the target, over random sets of candidates that are taken away together.
struct Infidelity {
  /// E[(β·Σ scores − fall)²], β the factor with which it is smallest, for attributions have units of their own. Source: Yeh, Hsieh,
  /// Suggala, Inouye and Ravikumar, "On the (In)fidelity and Sensitivity of Explanations" (2019), with their optimal scaling.
  double value = 0;
  double share = 0;  ///< of E[fall²]: 0 foretells everything, 1 nothing
};

/// Random sets, and what the target falls by without them: drawn once, for all attributions.
struct Perturbations {
  std::vector<std::vector<Index>> sets;
  std::vector<double> falls;
};
Perturbations perturbations(const ExplainedModel& model, Occlusion how, Index count,
                            std::uint64_t seed, const Progress& progress = {});
Infidelity infidelity(std::span<const double> scores, const Perturbations& perturbations);

/// Mean, smallest and largest of repeated measurements.
struct Spread {
  double mean = 0;
  double low = 0;
  double high = 0;
};
Spread spread_of(std::span<const double> values);

/// What an attribution is worth for a text.
struct Faith {
  double deletion_area = 0;
  double insertion_area = 0;
  double comprehensiveness = 0;
  double sufficiency = 0;
  double infidelity = 0;  ///< share of what falls
  double spearman = 0;    ///< with the intervention's scores
  double kendall = 0;
};
/// The same of random scores, over several draws.
struct RandomFaith {
  Spread deletion_area;
  Spread insertion_area;
  Spread comprehensiveness;
  Spread sufficiency;
  Spread infidelity;
  Spread spearman;
  Spread kendall;
};

/// What is measured once a text, and serves every attribution.
struct FaithSetup {
  Occlusion how = Occlusion::ReplaceToken;
  std::vector<Index> candidates;
  std::vector<double> intervention;  ///< [T], occlusion(model, how)
  Perturbations sets;
  double target = 0;    ///< of the text as it is
  double baseline = 0;  ///< without any candidate
};
struct FaithOptions {
  Occlusion how = Occlusion::ReplaceToken;
  Index sets = 64;         ///< of infidelity
  Index random_runs = 10;  ///< of the baseline
  std::uint64_t seed = 17;
};
FaithSetup faith_setup(const ExplainedModel& model, const FaithOptions& options,
                       const Progress& progress = {});

struct MeasuredFaith {
  Faith faith;
  Curves curves;
};
MeasuredFaith measure_faith(const ExplainedModel& model, const FaithSetup& setup,
                            std::span<const double> scores, const Progress& progress = {});
struct RandomBaseline {
  RandomFaith faith;
  std::vector<Faith> draws;
  std::vector<Curves> curves;  ///< of each draw
};
RandomBaseline random_baseline(const ExplainedModel& model, const FaithSetup& setup,
                               const FaithOptions& options, const Progress& progress = {});

}  // namespace qkv::explain
