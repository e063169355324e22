// Applying a corner to the sizes of a call.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "qkv/mask.h"

namespace qkv {

/// Where the diagonal of each sample lies: query t at key t + offset. Refers to the entries that it was made of.
class Diagonal {
 public:
  Diagonal() = default;
  /// Query t of sample b at entries[b] + shift + t; one entry serves every sample, none is 0.
  Diagonal(std::span<const Index> entries, Index shift) : entries_(entries), shift_(shift) {}

  Index operator()(Index b) const noexcept {
    if (entries_.empty()) return shift_;
    return entries_[entries_.size() == 1 ? 0 : static_cast<std::size_t>(b)] + shift_;
  }

 private:
  std::span<const Index> entries_;
  Index shift_ = 0;
};

/// The diagonal of a corner; query 0 at key 0 without one. Throws std::invalid_argument
/// "operation: argument: …" where T and S differ and no corner is given, or where its offsets are neither one nor one a
/// sample. `user` completes the message: "a causal rule".
Diagonal bind_corner(std::string_view operation, std::string_view argument, std::string_view user,
                     const std::optional<Corner>& corner, const MaskShape& shape);

}  // namespace qkv
