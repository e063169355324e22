// One thing that can look odd each, and what to say where it does and is right.
#pragma once

#include <string>
#include <vector>

#include "check/variant_rows.h"

namespace qkv {

class Remarks {
 public:
  explicit Remarks(const Evaluator& evaluator) : evaluator_(evaluator), dump_(evaluator.dump()) {}

  /// Rows that nobody reads, and differ from what was meant.
  void unread_rows();
  /// What rows without a key hold, where the dump leaves it open.
  void empty_rows();
  /// Scores of hidden pairs, where the file has them.
  void hidden_scores();
  /// Scores that differ from those meant by one number a row.
  void shifted_scores();
  /// Positions that do not start at 0.
  void shifted_positions();
  void transposed_weights();
  /// A bias of the keys that out does not depend on.
  void key_bias();
  /// Weights that a sink keeps below 1.
  void sink_share();

  std::vector<std::string> take() { return std::move(remarks_); }

 private:
  std::vector<OutputRow> read_head_rows() const;
  double recorded_sum(const OutputRow& row) const;
  /// How far a sum of recorded weights is from its own by rounding.
  double sum_allowed() const;
  void say(std::string text) { remarks_.push_back(std::move(text)); }

  const Evaluator& evaluator_;
  const Dump& dump_;
  std::vector<std::string> remarks_;
};

/// Some of the rows where they are many.
std::vector<OutputRow> evenly(const std::vector<OutputRow>& rows);

}  // namespace qkv
