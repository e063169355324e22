// Whether a dump holds what it was meant to hold: every result against the oracle's, in units of the rounding that is expected of
// its dtype.
//
// Two things are asked of a tensor. No element may be further away than the largest of so many rounding errors is, and no part of
// it (sample, head, block of rows, column) may have a larger root mean square than rounding makes: a bug that hides inside of every
// element's bound has one. Bounds are such that rounding crosses one in a million tensors by chance, times a margin for
// kernels that round more often than the model.
#pragma once

#include <string>
#include <vector>

#include "check/expected.h"

namespace qkv {

/// What a kernel may err more than the model of rounding says: one more rounding of 16 bits; in float32 and float64 any order of
/// summation, whose errors are far below a bug's. Right kernels (tests/check/bugs) reach 1.0 and 2.
inline constexpr double kMarginOf16Bits = 1.2;
inline constexpr double kMarginOfWide = 4;

/// Errors of |got − expected| in units of its standard deviation.
struct UnitMap {
  Tensor<float, 4>
      units;  ///< negative where nothing was compared, infinite where a number was not one
};

/// A part of a tensor whose root mean square is beyond its bound.
struct WrongPart {
  std::string axis;  ///< "sample", "head", "row block", "column", "sample and head"
  Index begin = 0;   ///< along the axis; sample · heads + head for both
  Index end = 0;
  double rms_units = 0;
  double rms_allowed = 0;
};

struct TensorVerdict {
  std::string name;  ///< as the dump calls it
  bool matches = true;
  Index compared = 0;    ///< elements
  Index beyond = 0;      ///< of which further away than allowed
  Index not_finite = 0;  ///< NaN or infinite where a number was expected, or the reverse
  double largest_error = 0;
  double largest_units = 0;
  double largest_allowed = 0;  ///< in units
  Extents<4> largest_at{};     ///< [b,h,t,d]; [b,0,t,d] of a projected tensor
  double rms_units = 0;
  double rms_allowed = 0;
  std::vector<WrongPart> wrong_parts;
  UnitMap map;
};

struct Verdict {
  bool matches = true;
  std::vector<TensorVerdict> tensors;  ///< `out` first
  Expected expected;

  /// The first tensor that differs; `out` where none does.
  const TensorVerdict& worst() const;
};

/// `stored_in` is the dtype that the file keeps `out` in.
Verdict judge(const Dump& dump, DType stored_in);

/// What rounding leaves of Gaussian errors with probability 1 − 10⁻⁶: the largest of `count`, and the root mean square of
/// `independent` of them where `parts` parts are looked at.
double largest_of_rounding(Index count);
double rms_of_rounding(Index independent, Index parts);

}  // namespace qkv
