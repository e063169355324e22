// Rows of a dump on which variants are tried, and how far a variant is from what the dump holds there.
#pragma once

#include <span>
#include <vector>

#include "check/diagnosis.h"
#include "check/variant_rows.h"

namespace qkv {

/// What a variant gives on some rows.
struct Trial {
  Variant variant;
  VariantRows rows;
  Distance distance;
};

/// How much nearer to the dump one trial is than another.
struct Contest {
  /// Length of their difference, in units, over all elements: below a few nothing can tell them apart.
  double difference = 0;
  /// Where the dump lies on the line between them: 0 at the first, 1 at the second.
  double place = 0;
  /// Largest difference of one element, in units.
  double largest = 0;
};

class Screen {
 public:
  Screen(const Evaluator& evaluator, std::vector<OutputRow> rows)
      : evaluator_(evaluator), rows_(std::move(rows)) {}

  const std::vector<OutputRow>& rows() const noexcept { return rows_; }
  const Evaluator& evaluator() const noexcept { return evaluator_; }

  Trial trial(const Variant& variant) const;
  /// The same with the policy for empty rows that fits the dump best, where the variant makes rows empty.
  Trial trial_with_policy(const Variant& variant) const;
  Contest contest(const Trial& first, const Trial& second) const;
  /// (dump − values) / units of a row, at most `kFarthest`; that where only one of them is a number.
  double row_rms(const Trial& trial, std::size_t row) const;

  static constexpr double kFarthest = 1e20;

 private:
  Distance distance(const VariantRows& values, std::span<const OutputRow> rows) const;

  const Evaluator& evaluator_;
  std::vector<OutputRow> rows_;
};

/// What rounding may make of a right computation, as a root mean square in units.
double rms_tolerance(DType ran_in);
double max_tolerance(DType ran_in);

}  // namespace qkv
