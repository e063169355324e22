// The parts of `exercises`, one a question of §10: each adds its tables and effects.
#pragma once

#include "lab/experiment_parts.h"
#include "qkv/multi_head_attention.h"

namespace qkv::lab {

/// D = 768, H = 12: what is Dh, and what are the last two axes of the scores?
void add_shapes(const ExperimentOptions& options, Experiment& experiment);
/// Why is a mask not multiplied in after the softmax?
void add_late_mask_limits(const ExperimentOptions& options, Experiment& experiment);
/// Do more heads mean more parameters?
void add_parameter_counts(const ExperimentOptions& options, Experiment& experiment);
/// What does position 0 of a causal model see?
void add_first_position(const ExperimentOptions& options, Experiment& experiment);
/// Why is the dot product a good similarity?
void add_similarities(const ExperimentOptions& options, Experiment& experiment);
/// And do models learn with it as well as with other ways of matching?
void add_matching_training(const ExperimentOptions& options, Experiment& experiment);

}  // namespace qkv::lab
