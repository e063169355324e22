// One element of a result worked out by hand: the keys that its row sees, their scores, weights and values.
#pragma once

#include <vector>

#include "check/verdict.h"

namespace qkv {

struct HandKey {
  Index key = 0;
  double product = 0;  ///< q·k
  double score = 0;    ///< scaled, and what the rules make of it
  double weight = 0;
  double value = 0;  ///< v[key,d]
};

struct HandSlice {
  Index sample = 0;
  Index head = 0;
  Index row = 0;
  Index column = 0;  ///< of the head's context
  double scale = 1;
  std::vector<HandKey> keys;  ///< those of the largest weights, in the order of the keys
  Index hidden = 0;           ///< keys that the row does not see
  Index others = 0;           ///< visible ones that are not in `keys`
  double other_weight = 0;
  double other_sum = 0;  ///< Σ weight·value over them
  double sink_weight = 0;
  double context = 0;  ///< Σ weight·value

  std::string tensor;  ///< that holds the following element
  Extents<4> at{};
  double expected = 0;
  double got = 0;
  double unit = 0;  ///< standard deviation of rounding
};

/// An element of `tensor` that is far away, in the row that sees the fewest keys. Of a projected output, the row of head 0 stands for all of them.
HandSlice hand_slice(const Dump& dump, const Verdict& verdict, const TensorVerdict& tensor,
                     std::size_t most_keys = 6);

}  // namespace qkv
