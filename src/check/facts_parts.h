// Wrong rows, and what each kind of sentence about them needs.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "check/screening.h"

namespace qkv {

/// A row further away than this, in units, is wrong; of two rows that are nearer nothing tells them apart.
inline constexpr double kWrongRow = 5;

/// Some wrong rows, and what was meant to stand there.
class WrongRows {
 public:
  WrongRows(const Evaluator& evaluator, std::vector<OutputRow> rows)
      : screen_(evaluator, std::move(rows)), intended_(screen_.trial({})) {}

  std::size_t count() const noexcept { return screen_.rows().size(); }
  const OutputRow& row(std::size_t i) const { return screen_.rows()[i]; }
  const Evaluator& evaluator() const noexcept { return screen_.evaluator(); }
  const Dump& dump() const noexcept { return evaluator().dump(); }

  std::span<const double> recorded(std::size_t i) const { return evaluator().recorded(row(i)); }
  std::span<const double> intended(std::size_t i) const { return line(intended_.rows.values, i); }
  std::span<const double> units(std::size_t i) const { return line(intended_.rows.units, i); }
  bool empty(std::size_t i) const { return intended_.rows.empty[i]; }

 private:
  static std::span<const double> line(const Tensor<double, 2>& matrix, std::size_t i) {
    const auto width = static_cast<std::size_t>(matrix.shape(1));
    return matrix.elements().subspan(i * width, width);
  }

  Screen screen_;
  Trial intended_;
};

/// Indices of wrong rows.
using RowGroup = std::vector<std::size_t>;

/// Root mean square of (got − factor · value) / unit; infinite where one of them is not a number.
double distance_of(std::span<const double> got, std::span<const double> value,
                   std::span<const double> units, double factor = 1);

/// Whether rows that are so far from a claim bear it out: each one, and all together.
bool borne_out(std::span<const double> row_rms, DType ran_in);

/// What all rows of a group are: NaN, 0, a multiple of what was meant, all the same, a mean of values.
std::optional<std::string> what_rows_hold(const WrongRows& wrong, const RowGroup& group);
/// A multiple of what was meant, with a factor of its own in each row.
std::optional<std::string> own_multiples(const WrongRows& wrong, const RowGroup& group);
/// What was meant for another head, sample or query.
std::optional<std::string> whose_rows(const WrongRows& wrong, const RowGroup& group);
/// Keys without which, or with which alone, or twice, the rows come out.
std::optional<std::string> which_keys(const WrongRows& wrong, const RowGroup& group);

/// A rule that the metadata lack and that gives all of `rows`, right ones and wrong ones.
std::optional<std::string> unsaid_rule(const Evaluator& evaluator,
                                       const std::vector<OutputRow>& rows);
/// What recorded weights and log-sum-exp say about these rows.
std::vector<std::string> facts_of_results(const WrongRows& wrong);

}  // namespace qkv
