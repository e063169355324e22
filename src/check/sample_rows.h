// Which rows of a dump variants are tried on first.
#pragma once

#include <vector>

#include "check/variant_rows.h"

namespace qkv {

struct SampleRows {
  std::vector<OutputRow> few;   ///< of a few heads: a wrong variant fails here
  std::vector<OutputRow> more;  ///< of every head and sample, the few among them
  bool all = false;             ///< `more` is every row that is read
};

/// `rms` is how far each of `rows` is from what was meant, in units.
SampleRows sample_rows(const Evaluator& evaluator, const std::vector<OutputRow>& rows,
                       const std::vector<double>& rms, std::size_t limit);

}  // namespace qkv
