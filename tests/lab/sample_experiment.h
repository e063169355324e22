// Made-up experiments with one of everything that an experiment can hold, to see how it is written and drawn.
#pragma once

#include <vector>

#include "lab/experiment.h"

namespace qkv::lab {

/// Two of them. Numbers of heat maps tell their place: layer, sample, head, query and key are the digits.
std::vector<Experiment> sample_experiments();

}  // namespace qkv::lab
