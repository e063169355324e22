// Whether an experiment's tables, charts and heat maps are whole.
#pragma once

#include "lab/experiment.h"

namespace qkv::lab {

/// Throws std::logic_error that names the part: a row of another length than its columns, a series whose x and y differ in
/// length, variants of different sizes, a key that is there twice.
void check_experiment(const Experiment& experiment);

}  // namespace qkv::lab
