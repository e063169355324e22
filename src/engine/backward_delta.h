// What is summed over a whole query: delta, and the gradients that need nothing else.
#pragma once

#include "engine/backward_operands.h"

namespace qkv::engine {

/// delta of one query but for the part of the weights' gradients; decides whether it takes part.
template <class T>
void prepare_query(const BackwardWork<T>& work, Index b, Index h, Index t) noexcept;

/// delta += Σ_j p·dweights, for a tile of rows.
template <class T>
void add_weights_to_delta(const BackwardWork<T>& work, const KvHead& kv, Index tile_number,
                          const GradientMemory<T>& own, BlockRows<T>& scratch) noexcept;

/// The sink's weight is exp(sink − lse), its value 0: dsink = −Σ weight·delta.
template <class T>
void write_sink_gradient(const BackwardWork<T>& work, Index h) noexcept;

/// A bias that is the same for all keys: its gradient is the sum over the rows that it serves, in order.
template <class T>
void add_row_sums(const BackwardWork<T>& work) noexcept;

}  // namespace qkv::engine
