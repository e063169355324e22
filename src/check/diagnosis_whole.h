// A dump as a whole: every row that is read, in chunks.
#pragma once

#include <functional>
#include <vector>

#include "check/explanation.h"

namespace qkv {

/// Told how much of it is done, 0 to 1.
using Progress = std::function<void(double)>;

/// Rows that are read, and how far each is from what was meant.
struct Whole {
  std::vector<OutputRow> rows;
  std::vector<double> rms;
  Distance intended;  ///< of all of them
};
Whole measure_whole(const Evaluator& evaluator, const Progress& progress);

/// The same explanations, their distances of all rows; the first of them only where the rest would take too long.
std::vector<Explanation> measured_on_the_whole(const Evaluator& evaluator,
                                               const std::vector<OutputRow>& rows,
                                               std::vector<Explanation> explanations,
                                               const Progress& progress);

/// Classes of the catalogue that are what was meant, as far as rounding lets the rows tell, or lack what they need; in the
/// order of the catalogue.
std::vector<NotShown> classes_not_shown(const Catalogue& catalogue, const Screen& few,
                                        const Screen& more, const Trial& intended);

}  // namespace qkv
