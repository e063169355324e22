// The parts of `implementations`: each adds its tables and effects.
#pragma once

#include "lab/experiment_parts.h"

namespace qkv::lab {

/// The engine against the oracle, forward and backward, by dtype.
void add_oracle_differences(const ExperimentOptions& options, Experiment& experiment);
/// MultiHeadAttention against PyTorch's, in Python and in C++. Why there was no PyTorch to ask, a reason each; empty where all was asked.
std::vector<std::string> add_torch_differences(const ExperimentOptions& options,
                                               Experiment& experiment);
/// Seconds and memory of engine, oracle and, where it is there, PyTorch.
void add_speeds(const ExperimentOptions& options, Experiment& experiment);
/// What strided inputs cost against contiguous ones, and which views of them there are.
void add_layouts(const ExperimentOptions& options, Experiment& experiment);

}  // namespace qkv::lab
