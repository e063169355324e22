// What `--inject` adds to an experiment that trains: the tests that would have caught the bug.
#pragma once

#include <vector>

#include "lab/experiment.h"

namespace qkv::lab {

/// The variants that an experiment trained, as ExperimentOptions::injected is told of them.
struct InjectedInto {
  std::vector<Text> carriers;
  std::vector<Text> others;  ///< without what the bug is about, or with a bug of their own
};

/// Puts its table first. options.inject is set. Throws std::invalid_argument where it is no class that a model can be trained with.
void add_injected_bug(const ExperimentOptions& options, const InjectedInto& into,
                      Experiment& experiment);

}  // namespace qkv::lab
