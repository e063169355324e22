// Parts of the catalogue, by the stage that they bend. Each adds what this dump can show, the likeliest first.
#pragma once

#include "check/hypotheses.h"

namespace qkv {

/// How rules are applied.
void list_mask_hypotheses(const Dump& dump, std::vector<Hypothesis>& list);
/// Which keys they cover.
void list_visibility_hypotheses(const Dump& dump, std::vector<Hypothesis>& list);
/// Scale, softmax, what is added to scores.
void list_score_hypotheses(const Dump& dump, std::vector<Hypothesis>& list);
/// Heads, and the output.
void list_head_hypotheses(const Dump& dump, std::vector<Hypothesis>& list);
/// Projections, norm and rotary positions.
void list_input_hypotheses(const Dump& dump, std::vector<Hypothesis>& list);

}  // namespace qkv
