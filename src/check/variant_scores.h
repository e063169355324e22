// Scores and weights of one query as a Variant has them.
#pragma once

#include <vector>

#include "check/variant_heads.h"
#include "check/variant_visibility.h"

namespace qkv {

/// The heads that a call reads, loaded where first asked for. Re-entrant.
class HeadTable {
 public:
  HeadTable(const Dump& dump, const VariantHeads& heads, const Variant& variant);
  const HeadMatrix& operator()(std::size_t tensor, Index b, Index head);

 private:
  struct Slot {
    std::once_flag once;
    std::shared_ptr<const HeadMatrix> matrix;
  };
  const VariantHeads& heads_;
  const Variant& variant_;
  std::array<std::string, 3> keys_;
  std::array<Index, 3> count_;  ///< heads of each tensor
  std::array<std::vector<Slot>, 3> slots_;
};

/// One query on its way to a context; entries are keys.
struct QueryScores {
  std::vector<KeyVisibility> visibility;
  std::vector<const double*> key;
  std::vector<const double*> value;
  std::vector<double> key_square;    ///< of the key's length
  std::vector<double> key_variance;  ///< of one element
  std::vector<double> value_variance;
  std::vector<double> score;     ///< −∞ where hidden
  std::vector<double> unmasked;  ///< filled only where the row is empty
  std::vector<double> weight;
  double query_square = 0;
  double query_variance = 0;
  double scale = 1;
  double log_sum_exp = 0;
  bool empty = false;
  bool lost = false;  ///< every score that it sees has overflowed to −∞: −∞ − −∞ is no number
};

class Scorer {
 public:
  Scorer(const Dump& dump, const Variant& variant, HeadTable& table);

  Index keys() const noexcept;
  /// Scores of query t of head h in sample b.
  void score(Index b, Index h, Index t, QueryScores& query) const;
  /// Softmax over the keys, and what follows it.
  void weigh(Index h, QueryScores& query) const;
  /// The same where another axis was normalised: `norm` [keys] is what to subtract before the exponential.
  void weigh_by(const std::vector<double>& norm, Index others, QueryScores& query) const;
  EmptyPolicy empty_policy() const noexcept { return policy_; }

 private:
  double score_of(double product, Index b, Index h, Index t, Index s,
                  const KeyVisibility& visibility) const;
  void weigh_empty(QueryScores& query) const;

  const Dump& dump_;
  const Variant& variant_;
  HeadTable& table_;
  EmptyPolicy policy_;
};

/// The policy that a dump means.
EmptyPolicy intended_policy(const Dump& dump);

}  // namespace qkv
