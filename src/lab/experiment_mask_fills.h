// What hidden keys get under −∞ and "a very negative number": the measurements of `mask`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qkv/dtype.h"
#include "qkv/engine.h"

namespace qkv::lab {

inline constexpr Index kFillTokens = 8;

/// The largest weight that a hidden key got in rows that see something and in
/// rows that see nothing. NaN where weights are NaN.
struct Leak {
  double seeing = 0;
  double blind = 0;
};

/// One row of the table.
struct FillResult {
  Leak one_mask;
  Leak two_masks;
  Leak far_below;
  bool spreads_garbage =
      false;  ///< NaN in a value that no row sees reaches the output of rows that see something
};

struct FillRow {
  DType dtype = DType::Float64;
  std::string fill;
  double stored = 0;
  FillResult result;
  bool engine = false;
};

/// Four fills and the library, in four dtypes.
std::vector<FillRow> measure_fills(std::uint64_t seed, const engine::Options& options);

}  // namespace qkv::lab
