// Models trained with the padding mask on each axis: the last part of `padding`.
#pragma once

#include "lab/experiment.h"

namespace qkv::lab {

void add_padding_training(const ExperimentOptions& options, Experiment& experiment);

}  // namespace qkv::lab
