// Differences from the oracle.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "bench/subject.h"

namespace qkv::bench {

/// Wrong is what no rounding explains: the bounds that `qkv align` has for float64 and `qkv trace` for float32. The 16-bit
/// types have a few of their roundings, for PyTorch rounds results, and in bfloat16 weights, to them.
inline double allowed_difference(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return 1e-12;
    case DType::Float16:
      return 4 * 0x1p-11;
    case DType::BFloat16:
      return 4 * 0x1p-8;
    default:
      return 1e-5;
  }
}

/// Gathers the largest difference and the largest entry over several pieces of a result.
class DifferenceFromOracle {
 public:
  void add(double got, double expected) noexcept {
    largest_ = std::max(largest_, std::fabs(expected));
    const double difference = std::fabs(got - expected);
    // Not max(): a NaN would be lost.
    if (!(difference <= difference_)) difference_ = difference;
    if (!std::isfinite(difference)) finite_ = false;
  }
  OracleCheck against(double allowed) const noexcept {
    if (!finite_) return {std::numeric_limits<double>::infinity(), allowed};
    return {largest_ > 0 ? difference_ / largest_ : difference_, allowed};
  }

 private:
  double largest_ = 0;
  double difference_ = 0;
  bool finite_ = true;
};

}  // namespace qkv::bench
