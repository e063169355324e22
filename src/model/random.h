// Random numbers that a seed determines on every platform: the engine is the standard's, the distributions are written here.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>

#include "qkv/tensor.h"

namespace qkv {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  /// [0, 1).
  double uniform() { return static_cast<double>(engine_() >> 11U) * 0x1p-53; }

  /// One of 0, 1, …, count − 1; count is 1 or more.
  Index below(Index count) { return static_cast<Index>(uniform() * static_cast<double>(count)); }

  /// Standard normal. Source: Box and Muller (1958).
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log1p(-uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace qkv
