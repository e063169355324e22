// Queries that are the last tokens of what a cache holds.
#pragma once

#include <optional>
#include <span>

#include "base/corner.h"
#include "qkv/mask.h"

namespace qkv {

/// Query t of T in sample b is token lengths[b] − T + t. It sees itself and what comes before, at most `window` of them.
struct CachedTokens {
  std::span<const Index> lengths;  ///< one a sample
  std::optional<Index> window = std::nullopt;

  Diagonal diagonal(Index queries) const noexcept { return {lengths, -queries}; }
};

class BoundMaskAccess {
 public:
  /// Intersects a mask with what the tokens see. The mask refers to the lengths.
  static void narrow(BoundMask& mask, const CachedTokens& tokens) noexcept {
    mask.cached_lengths_ = tokens.lengths;
    mask.cached_window_ = tokens.window;
  }
};

}  // namespace qkv
