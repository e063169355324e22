// Our results beside those that a model recorded.
#pragma once

#include <optional>
#include <vector>

#include "lab/trace.h"

namespace qkv::lab {

/// Query and key after the split, before rotary positions turn them.
struct BeforeRotary {
  TensorView<const double, 4> query;  ///< [B,H,T,Dk]
  TensorView<const double, 4> key;    ///< [B,Hkv,S,Dk]
};

/// One entry a recorded tensor. weights, context and out are compared on rows that see a key in
/// every head; q, k and v everywhere, and only where they were computed (`before_rotary` is there).
/// Throws std::invalid_argument where a recorded tensor has another shape than ours.
std::vector<Comparison> compare(const Trace& trace, const Recorded& recorded,
                                const std::optional<BeforeRotary>& before_rotary);

}  // namespace qkv::lab
