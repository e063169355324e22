// The model of rounding that results are judged by, stated once.
//
// Norm-wise: an error is measured against the largest magnitude of what it belongs to (a tensor of results), not entry by entry. Two things
// set it. A result is a sum of products, of which each term is rounded a few times; and a weight exp(s − lse) inherits
// the absolute error of its exponent: the product, its scaling, the change of base and lse are rounded once each, by
// the unit roundoff times the magnitudes that s and lse have (Higham,
// "Accuracy and Stability of Numerical Algorithms", 2002, ch. 3 and 4). Sums longer than a few terms do worse than the first
// part says; they are judged by what a plain computation in the same precision makes of them, times two.
//
// Statistical: what rounding is expected to make, entry by entry, where a bound is too wide to tell a bug from rounding
// (check/rounding_unit.h). One rounding errs by kRoundingRms·u of the number, independently of the others (Higham and Mary, "A
// New Approach to Probabilistic Rounding Error Analysis", 2019), so variances add.
#pragma once

#include "qkv/dtype.h"

namespace qkv {

/// Half the distance of 1 and the next number of float32.
inline constexpr double kFloat32Roundoff = 0x1p-24;

/// What rounding explains whatever is computed, relative to the largest magnitude of the results. `largest_score` is the
/// largest magnitude of a score or a log-sum-exp.
constexpr double rounding_floor(double roundoff, double largest_score) {
  return roundoff * (16 + 4 * largest_score);
}

/// Half the distance of 1 and the next number; 0 for integers.
constexpr double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return 0x1p-53;
    case DType::Float32:
      return kFloat32Roundoff;
    case DType::Float16:
      return 0x1p-11;
    case DType::BFloat16:
      return 0x1p-8;
    default:
      return 0;
  }
}

/// Root mean square of a rounding error in units of u·|number|: uniform within half a spacing, over numbers that are as likely
/// in every part of an octave on a logarithmic scale: √(1/(8·ln 2)).
inline constexpr double kRoundingRms = 0.4247;

}  // namespace qkv
