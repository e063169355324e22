// Rows of what a Variant computes, in float64, with the rounding that the dump's dtype would make of them.
#pragma once

#include <span>
#include <tuple>
#include <vector>

#include "check/dump.h"
#include "check/rounding_unit.h"
#include "check/variant.h"
#include "check/variant_heads.h"

namespace qkv {

/// Multiplications below which starting threads costs more than they save.
inline constexpr double kWorthThreads = 2e7;

/// One row of `out`: of a head, or of all of them (h = 0) where the dump holds projected tokens.
struct OutputRow {
  Index b = 0;
  Index h = 0;
  Index t = 0;
  bool operator==(const OutputRow&) const = default;
  bool operator<(const OutputRow& other) const noexcept {
    return std::tie(b, h, t) < std::tie(other.b, other.h, other.t);
  }
};

struct VariantRows {
  Tensor<double, 2> values;         ///< [rows, width]
  Tensor<double, 2> units;          ///< standard deviation of rounding, the same shape
  std::vector<double> log_sum_exp;  ///< [rows], natural; of heads only
  std::vector<bool> empty;          ///< rows with nothing to attend to
};

class Evaluator {
 public:
  Evaluator(const Dump& dump, int threads);

  const Dump& dump() const noexcept { return dump_; }
  /// Whether a row is a token of the projected output.
  bool projected() const noexcept { return dump_.stage == OutStage::Projected; }
  Index width() const noexcept { return width_; }
  /// Every row of `out`, in its order.
  std::vector<OutputRow> all_rows() const;
  /// What the dump holds there.
  std::span<const double> recorded(const OutputRow& row) const;

  VariantRows rows(const Variant& variant, std::span<const OutputRow> wanted) const;
  /// Weights [S] of a row of a head, before anything is done to the context.
  std::vector<double> weights(const Variant& variant, const OutputRow& row) const;
  /// Natural log-sum-exp of a row of a head.
  double log_sum_exp(const Variant& variant, const OutputRow& row) const;
  /// How many rows of scores it takes to compute one row.
  double cost(const Variant& variant) const;

 private:
  void project(const OutputVariant& variant, std::span<const OutputRow> wanted,
               const Tensor<double, 2>& merged, const Tensor<double, 2>& variance,
               VariantRows& result) const;

  const Dump& dump_;
  VariantHeads heads_;
  Arithmetic arithmetic_;
  int threads_;
  Index width_ = 0;
  double smallest_unit_ =
      0;  ///< next to the size of what the dump holds, 0 is as good as any small number
  Tensor<double, 1> projection_norm_;  ///< of each row of the output projection
};

}  // namespace qkv
