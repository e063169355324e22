// The model of rounding that results are judged by, stated once.
//
// Norm-wise: an error is measured against the largest magnitude of what it belongs to (a tensor of results), not entry by entry. Two things
// set it. A result is a sum of products, of which each term is rounded a few times; and a weight exp(s − lse) inherits
// the absolute error of its exponent: the product, its scaling, the change of base and lse are rounded once each, by
// the unit roundoff times the magnitudes that s and lse have (Higham,
// "Accuracy and Stability of Numerical Algorithms", 2002, ch. 3 and 4). Sums longer than a few terms do worse than the first
// part says; they are judged by what a plain computation in the same precision makes of them, times two.
#pragma once

namespace qkv {

/// Half the distance of 1 and the next number of float32.
inline constexpr double kFloat32Roundoff = 0x1p-24;

/// What rounding explains whatever is computed, relative to the largest magnitude of the results. `largest_score` is the
/// largest magnitude of a score or a log-sum-exp.
constexpr double rounding_floor(double roundoff, double largest_score) {
  return roundoff * (16 + 4 * largest_score);
}

}  // namespace qkv
