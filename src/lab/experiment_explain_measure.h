// What attributions find on tasks with known answers: hits, tests of faith, judgements.
#pragma once

#include <string>
#include <vector>

#include "explain/agreement.h"
#include "explain/report.h"
#include "lab/experiment_explain_tasks.h"

namespace qkv::lab {

/// Numbers of a method on a task, one a seed: means over that seed's questions. Curves and what follows from them are of the right
/// answer's probability, infidelity and ranks of its logarithm, which attributions explain.
struct FaithBySeed {
  std::vector<double> deletion;
  std::vector<double> insertion;
  std::vector<double> comprehensiveness;
  std::vector<double> sufficiency;
  std::vector<double> infidelity;
  std::vector<double> spearman;
  std::vector<double> kendall;
  std::vector<std::vector<double>> curve;  ///< of deletion, at kCurvePoints parts from 0 to 1
};
inline constexpr Index kCurvePoints = 11;

struct MethodOnTask {
  std::string key;
  Text name;
  std::string source;
  Index hits = 0;  ///< questions whose relevant token it ranks first
  FaithBySeed faith;
  /// Correlation with itself after shuffling the last layer, and all of them, a seed each; empty for interventions.
  std::vector<double> last_shuffled;
  std::vector<double> all_shuffled;
};

struct TaskFindings {
  KnownTask task;
  std::vector<KnownModel> models;  ///< a seed each
  Index questions = 0;             ///< of all seeds
  double chance = 0;               ///< hits expected of a random ranking, a question
  std::vector<MethodOnTask> methods;
  FaithBySeed random;
  Index reports = 0;
  Index misleading = 0;                      ///< reports that call the heat map misleading
  Index relays = 0;                          ///< reports that name a relay
  std::vector<explain::Ablation> ablations;  ///< of each seed's first report
  explain::Report example;                   ///< the first seed's first question
  double rollout_error = 0;                  ///< largest |row sum − 1|

  const MethodOnTask& method(std::string_view key) const;
  std::vector<double> accuracies() const;
};

struct FindingOptions {
  int seeds = 5;
  Index questions = 20;  ///< of a seed
  Index reports = 3;     ///< of them
};

TaskFindings find_on_task(const KnownTask& task, const FindingOptions& what,
                          const ExperimentOptions& options, const Stage& stage);

/// Gap of integrated gradients relative to what they should sum to, at each number of steps, a line a seed.
struct GapFindings {
  std::vector<Index> steps;
  std::vector<std::vector<double>> gaps;  ///< [seeds][steps]
};
GapFindings find_gaps(const TaskFindings& findings, const ExperimentOptions& options);

}  // namespace qkv::lab
