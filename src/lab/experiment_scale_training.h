// Models trained with and without the scale: the last part of `scale`.
#pragma once

#include "lab/experiment.h"

namespace qkv::lab {

void add_scale_training(const ExperimentOptions& options, Experiment& experiment);

}  // namespace qkv::lab
