// What heat maps are good for: where a head looks, by place and kind of token, and whether it looks where it must not.
#pragma once

#include <vector>

#include "explain/explained_model.h"

namespace qkv::explain {

enum class HeadKind : std::uint8_t {
  MaskViolation,  ///< sees what it is not meant to see
  Even,           ///< spreads its weight over all that it may see
  Special,
  Self,
  Previous,
  Next,
  First,
  Offset,   ///< another fixed distance
  Content,  ///< none of these: what it looks at depends on what the tokens are
};

/// Shares are means of weights over the queries that have a choice: that may see three keys or more.
struct HeadProfile {
  Index layer = 0;
  Index head = 0;
  double violation = 0;  ///< the largest weight of a pair that is not meant to be visible
  double special = 0;    ///< on special tokens, all together
  double self = 0;
  double previous = 0;
  double next = 0;
  double first = 0;
  Index offset = 0;  ///< key − query of the distance with the largest share
  double offset_share =
      0;               ///< over the queries that have a key at that distance, half of them at least
  double entropy = 0;  ///< of the largest that a row could have: 0 one key, 1 all alike
  HeadKind kind = HeadKind::Content;
  Text verdict;
};

std::vector<HeadProfile> head_profiles(const ExplainedModel& model, const Records& records);

}  // namespace qkv::explain
