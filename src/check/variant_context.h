// Contexts of single queries as a Variant has them, each once however many rows of out need it.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "check/variant_rows.h"
#include "check/variant_scores.h"

namespace qkv {

/// What one call needs of the context, and where it has been computed.
class ContextRows {
 public:
  ContextRows(const Dump& dump, const VariantHeads& heads, const Arithmetic& arithmetic,
              const Variant& variant, int threads)
      : dump_(dump),
        arithmetic_(arithmetic),
        variant_(variant),
        threads_(threads),
        table_(dump_, heads, variant),
        scorer_(dump_, variant, table_) {}

  void want(const OutputRow& row) { places_.emplace(row, 0); }
  void compute();
  Index place(const OutputRow& row) const { return places_.at(row); }

  Tensor<double, 2> context;
  Tensor<double, 2> variance;
  std::vector<double> log_sum_exp;
  std::vector<char> empty;

 private:
  void weights_of(const OutputRow& row, QueryScores& query) const;
  void normalise_columns();
  void transpose_weights(const OutputRow& row, QueryScores& query) const;

  const Dump& dump_;
  const Arithmetic& arithmetic_;
  const Variant& variant_;
  int threads_;  // 1 where the work is not worth more
  HeadTable table_;
  Scorer scorer_;
  std::map<OutputRow, Index> places_;
  /// Of a head, where the softmax or the sum ran along the queries: log Σ exp of each key, or all weights and scores [T,2,S].
  std::map<std::pair<Index, Index>, std::vector<double>> norms_;
  std::set<std::pair<Index, Index>>
      matters_;  ///< heads whose transposed weights hold those of rows without a key
};

}  // namespace qkv
