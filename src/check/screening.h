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
  /// Logarithm of the size of its errors: what compares trials whose units differ, for a computation that rounding could
  /// turn into anything is near to everything in its own units.
  double score = 0;
  /// Share of the square of the dump's numbers that it leaves unexplained.
  double unexplained = 0;
};

/// How much nearer to the dump one trial is than another.
struct Contest {
  /// Length of their difference, in units of the first, over all elements: below a few nothing can tell them apart.
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

  /// Multiplications of a trial of what was meant.
  double products() const;

  Trial trial(const Variant& variant) const;
  /// The same with the policy for empty rows that fits the dump best, where the variant makes rows empty.
  Trial trial_with_policy(const Variant& variant) const;
  /// Without the rows that are marked in `left_out`.
  Contest contest(const Trial& first, const Trial& second,
                  const std::vector<bool>& left_out = {}) const;
  /// (dump − values) / units of a row, at most `kFarthest`; that where only one of them is a number.
  double row_rms(const Trial& trial, std::size_t row) const;

  static constexpr double kFarthest = 1e20;

 private:
  void measure(Trial& trial, std::span<const OutputRow> rows) const;

  const Evaluator& evaluator_;
  std::vector<OutputRow> rows_;
};

/// What rounding may make of a right computation, as a root mean square in units.
double rms_tolerance(DType ran_in);
double max_tolerance(DType ran_in);

}  // namespace qkv
