// q, k and v of one head as a Variant has them when they enter the scores.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "check/dump.h"
#include "check/rounding_unit.h"
#include "check/variant.h"

namespace qkv {

/// Rows of one head, and what belongs to each: the square of its length.
struct HeadMatrix {
  Index rows = 0;
  Index width = 0;
  std::vector<double> elements;
  std::vector<double> squares;
  std::vector<double>
      variances;  ///< that rounding gave one element of each row on its way from x; 0 where it was given

  const double* row(Index i) const noexcept { return elements.data() + i * width; }
};

/// Loads heads and keeps them, up to a number of bytes, for variants that agree on them. Re-entrant.
class VariantHeads {
 public:
  explicit VariantHeads(const Dump& dump, std::size_t bytes = std::size_t{1} << 29);

  /// What of a variant decides about q, k or v (`tensor` 0, 1, 2): equal keys, equal heads.
  static std::string key(const Variant& variant, std::size_t tensor);
  /// `head` counts query heads for q, key/value heads for k and v.
  std::shared_ptr<const HeadMatrix> load(const Variant& variant, const std::string& key,
                                         std::size_t tensor, Index b, Index head) const;

 private:
  struct Entry {
    std::shared_ptr<const HeadMatrix> matrix;
    std::uint64_t used = 0;
  };
  /// Of one element of x·Wᵀ.
  double projection_variance(std::size_t tensor, Index b, Index token) const;
  std::shared_ptr<const HeadMatrix> make(const Variant& variant, std::size_t tensor, Index b,
                                         Index head) const;

  const Dump& dump_;
  Arithmetic arithmetic_;
  std::array<double, 3> weight_square_{};  ///< mean square of a projection's elements
  std::size_t capacity_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, Entry> entries_;
  mutable std::size_t bytes_ = 0;
  mutable std::uint64_t clock_ = 0;
};

}  // namespace qkv
