// The operands of a backward call, packed: tiles of queries and chunks of keys.
#pragma once

#include <array>

#include "engine/backward_work.h"
#include "engine/tile_rows.h"

namespace qkv::engine {

/// kGradientRows rows of a kv head.
struct QueryTile {
  TileRows rows;
  bool finite = true;
};

/// kChunkKeys keys of a kv head.
struct KeyChunk {
  KvHead kv;
  Index number = 0;
  Index first_key = 0;
  Index keys = 0;
  std::array<bool, kChunkBlocks> finite{};
};

/// Which keys the tile's rows see; a row that is left out sees none.
template <class T>
void assign_tile(const BackwardWork<T>& work, const KvHead& kv, Index number,
                 QueryTile& tile) noexcept;

/// The queries of a tile and the gradients of their contexts.
template <class T>
void pack_tile(const BackwardWork<T>& work, QueryTile& tile, const GradientMemory<T>& own) noexcept;

/// The keys and values of a chunk, block by block.
template <class T>
void pack_chunk(const BackwardWork<T>& work, KeyChunk& chunk,
                const GradientMemory<T>& own) noexcept;

/// The key panels of one block.
template <class T>
void pack_block_keys(const BackwardWork<T>& work, const KvHead& kv, Index first_key, Index keys,
                     T* target) noexcept;

/// What the kernels are told of rows [first, …) of a packed tile against a block of keys; no rows where they see none.
template <class T>
kernels::Block<T> block_of(const BackwardWork<T>& work, const TileRows& rows, Index first,
                           Index first_key, Index keys, const T* key_panels,
                           const GradientMemory<T>& own, BlockRows<T>& scratch) noexcept;

/// The weights' gradients of a row from first_key on: where they lie, or copied.
template <class T>
const T* weights_gradient_row(const BackwardWork<T>& work, Index b, Index h, Index t,
                              Index first_key, Index keys, T* storage) noexcept;

}  // namespace qkv::engine
