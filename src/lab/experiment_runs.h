// The experiments, in the order of the lesson. Each measures what it says; the same seed gives the same numbers, but for times
// and memory. Throws Interrupted where options.progress wants no more, std::bad_alloc where memory is short.
#pragma once

#include "lab/experiment.h"

namespace qkv::lab {

Experiment run_projections(const ExperimentOptions& options);      ///< §1
Experiment run_scale(const ExperimentOptions& options);            ///< §2
Experiment run_mask(const ExperimentOptions& options);             ///< §2, §4
Experiment run_complexity(const ExperimentOptions& options);       ///< §7
Experiment run_explain(const ExperimentOptions& options);          ///< §8
Experiment run_causal(const ExperimentOptions& options);           ///< §9
Experiment run_heads(const ExperimentOptions& options);            ///< §9
Experiment run_padding(const ExperimentOptions& options);          ///< §9
Experiment run_bugs(const ExperimentOptions& options);             ///< §9
Experiment run_implementations(const ExperimentOptions& options);  ///< §5, §6, §9
Experiment run_exercises(const ExperimentOptions& options);        ///< §10

}  // namespace qkv::lab
