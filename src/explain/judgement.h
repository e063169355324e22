// Whether an attribution may be believed for a text: what it points to is held against what an intervention finds.
#pragma once

#include <span>

#include "explain/faith.h"

namespace qkv::explain {

enum class Verdict : std::uint8_t {
  Agrees,       ///< its first token is one that matters
  Misleads,     ///< its first token matters less than half as much as the one that matters most
  NothingFound  ///< no single token lowers the target by 5 % of what all of them together change: nothing to point to
};

struct Judgement {
  Verdict verdict = Verdict::NothingFound;
  Index pointed = 0;        ///< the candidate that it ranks first
  Index decisive = 0;       ///< the one whose absence lowers the target most
  double pointed_fall = 0;  ///< by how much the target falls without each
  double decisive_fall = 0;
  double decisive_share =
      0;  ///< what the attribution gives the decisive one, of the sum of its absolute scores
  Index faster_than =
      0;  ///< random orders that lower the target more slowly: a larger deletion area
};

Judgement judge(const FaithSetup& setup, std::span<const double> scores, const Faith& faith,
                const RandomBaseline& random);

}  // namespace qkv::explain
