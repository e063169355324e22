// What §8 of the lesson claims, and whether it was there.
#pragma once

#include <vector>

#include "lab/experiment_explain_tables.h"

namespace qkv::lab {

/// `heads`: of each task's example, then those of the model whose mask leaks.
std::vector<Effect> explain_effects(const std::vector<TaskFindings>& all, const GapFindings& gaps,
                                    const std::vector<NamedHeads>& heads);

}  // namespace qkv::lab
