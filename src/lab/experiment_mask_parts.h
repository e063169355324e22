// The parts of `mask`: each adds its tables, pictures and effects.
#pragma once

#include "lab/experiment_parts.h"

namespace qkv::lab {

/// −∞ and "a very negative number" in four dtypes, where each holds and where it does not.
void add_fills(const ExperimentOptions& options, Experiment& experiment);
/// The mask before the softmax, after it, and after it with the rows divided by what is left.
void add_late_masks(const ExperimentOptions& options, Experiment& experiment);
/// Rows that see nothing: what they give, and what they do to everybody's gradient.
void add_blind_rows(const ExperimentOptions& options, Experiment& experiment);
/// Which keys causal, prefix and padded rows see.
void add_visible_keys(const ExperimentOptions& options, Experiment& experiment);

}  // namespace qkv::lab
