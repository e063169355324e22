// One query, worked out by hand: match, then aggregate.
#pragma once

#include <optional>
#include <vector>

#include "lab/trace.h"

namespace qkv::lab {

/// One key of the walk, and what the query makes of it.
struct WalkKey {
  std::vector<double> key;       ///< [Dk]
  std::vector<double> value;     ///< [Dv]
  std::vector<double> products;  ///< [Dk], q_d · k_d
  double dot = 0;                ///< their sum
  double scaled = 0;             ///< dot · scale
  double bias = 0;
  bool visible = false;              ///< else −∞ is added
  double exponential = 0;            ///< exp(scaled + bias − largest), 0 where hidden
  double weight = 0;                 ///< exponential / sum, 0 where no key is visible
  std::vector<double> contribution;  ///< [Dv], weight · value
};

struct Walk {
  Index sample = 0;
  Index head = 0;
  Index query_token = 0;
  std::vector<double> query;  ///< [Dk]
  double scale = 0;
  bool has_bias = false;
  std::vector<WalkKey> keys;      ///< every key, in order
  std::optional<double> largest;  ///< of the visible scores; nothing where no key is visible
  double sum = 0;                 ///< of the exponentials
  std::vector<double> context;    ///< [Dv], sum of the contributions
};

/// Which row of the scores.
struct RowChoice {
  Index sample = 0;
  Index head = 0;
  Index query = 0;
};

/// Throws std::invalid_argument where the trace has no such row.
Walk walk(const Trace& trace, const RowChoice& row);

}  // namespace qkv::lab
