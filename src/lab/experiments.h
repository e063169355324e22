// The experiments that `qkv lab` runs, in the order of the lesson.
#pragma once

#include <span>
#include <string_view>

#include "lab/experiment.h"

namespace qkv::lab {

struct ExperimentEntry {
  std::string_view name;     ///< "scale"
  int section = 0;           ///< of the lesson
  std::string_view summary;  ///< a line for the help
  bool trains = false;       ///< heeds inject
  bool reads_text = false;   ///< heeds text_file
  Experiment (*run)(const ExperimentOptions& options) = nullptr;
};

std::span<const ExperimentEntry> experiments();
/// Null where there is none of that name.
const ExperimentEntry* find_experiment(std::string_view name);
/// With options.inject, an experiment that trains says besides which tests would have caught the bug.
Experiment run_experiment(const ExperimentEntry& entry, const ExperimentOptions& options);

}  // namespace qkv::lab
