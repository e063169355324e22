// What a dump was meant to hold: every result that it has, by the oracle, with the variance that rounding gives it. The variance is
// infinite where anything goes: in rows that nobody reads, hidden scores, rows without a key as the dump's policy has it.
#pragma once

#include <optional>

#include "check/entering.h"

namespace qkv {

struct Expected {
  Arithmetic arithmetic;
  Entering entering;               ///< what enters the scores
  std::optional<Entering> inputs;  ///< q, k, v as x makes them, where the dump has both

  Rounded<4> context;                ///< [B,H,T,Dv], always
  std::optional<Rounded<3>> output;  ///< [B,T,D], after the output projection
  std::optional<Rounded<4>> weights;
  std::optional<Rounded<4>> scores;  ///< of visible pairs; 0 elsewhere
  std::optional<Rounded<3>> log_sum_exp;
  std::optional<Rounded<4>> query_gradient;
  std::optional<Rounded<4>> key_gradient;
  std::optional<Rounded<4>> value_gradient;

  /// [B,H,T]: the row sees no key. There the context is what the dump's policy says.
  Tensor<bool, 3> empty;
};

/// Throws std::invalid_argument where the rules do not fit the sizes.
Expected expected_results(const Dump& dump, DType stored_in);

}  // namespace qkv
