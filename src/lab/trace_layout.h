// The memory layout of every tensor on the way through attention.
#pragma once

#include <optional>
#include <vector>

#include "lab/trace.h"

namespace qkv::lab {

/// [B,T,H·Dk], [B,S,Hkv·Dk] and [B,S,Hkv·Dv] before the heads are split.
struct Projections {
  TensorView<const double, 3> query;
  TensorView<const double, 3> key;
  TensorView<const double, 3> value;
  bool rotary = false;  ///< whether positions turn the split query and key
};

/// The six shapes (projection, split, scores, weights, context, merge), and rotary positions
/// between split and scores where there are some. `trace` holds its tensors already; without
/// projections its query, key and value were given split.
std::vector<LayoutRow> describe_layout(const Trace& trace,
                                       const std::optional<Projections>& projections);

/// Tries to view context [B,H,T,Dv] as [B,T,H·Dv] after the transpose, for real.
ViewDemonstration demonstrate_view(const TensorView<const double, 4>& context);

}  // namespace qkv::lab
