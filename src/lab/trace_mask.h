// The rules of a mask as the additive tensors that other libraries would hold.
#pragma once

#include <vector>

#include "lab/trace.h"

namespace qkv::lab {

/// One entry a rule, in the order of the mask. Throws std::invalid_argument where a rule does not
/// fit.
std::vector<MaskTrace> trace_rules(const Mask& mask, const MaskShape& shape);

/// All rules at once; "none" where the mask has none.
MaskTrace trace_mask(const Mask& mask, const MaskShape& shape);

/// 0 where query t may see key s, −∞ where it may not.
double additive(const MaskTrace& mask, Index b, Index h, Index t, Index s);

}  // namespace qkv::lab
