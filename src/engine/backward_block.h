// The derivatives of one tile of queries and one block of keys.
#pragma once

#include "engine/backward_operands.h"

namespace qkv::engine {

/// Adds what the packed tile and one block of the packed chunk give to the thread's gradients of queries, keys and values,
/// and to the gradient of the bias.
template <class T>
void differentiate(const BackwardWork<T>& work, const QueryTile& tile, const KeyChunk& chunk,
                   Index block_number, const GradientMemory<T>& own,
                   BlockRows<T>& scratch) noexcept;

}  // namespace qkv::engine
