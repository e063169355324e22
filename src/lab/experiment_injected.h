// What `--inject` adds to an experiment that trains: the tests that would have caught the bug.
#pragma once

#include "lab/experiment.h"

namespace qkv::lab {

/// options.inject is set. Throws std::invalid_argument where it is no class that a model can be trained with.
void add_injected_bug(const ExperimentOptions& options, Experiment& experiment);

}  // namespace qkv::lab
