// What a query may see as a Variant has it, key by key.
#pragma once

#include <vector>

#include "check/dump.h"
#include "check/variant.h"

namespace qkv {

/// How one key enters one query's softmax.
struct KeyVisibility {
  bool hidden = false;  ///< score −∞
  bool filled = false;  ///< score `fill`
  bool erased = false;  ///< weight 0 after the softmax
  bool rest = true;     ///< the rules of position and documents leave it
  double fill = 0;
  double added = 0;
  int hiding = 0;  ///< how many rules hide it
};

/// Where the diagonal of a rule lies in sample b.
Index corner_offset(const Dump& dump, const CornerVariant& variant, Index b);

/// Writes what query t of head h in sample b sees: an entry a key. Where the keys are heads or samples, only the causal rule
/// holds, along that axis.
void visibility_of(const Dump& dump, const Variant& variant, Index b, Index h, Index t,
                   std::vector<KeyVisibility>& keys);

/// Whose rule is taken for sample b and head h, of `samples`.
Index sample_of(SampleMap map, const AttentionShape& shape, Index b, Index h);

}  // namespace qkv
