// What the rows of a tile see of a range of keys, and what modifies their scores: the mask's arithmetic,
// applied. Tells hidden, full and partial blocks apart.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "engine/call.h"

namespace qkv::engine {

/// The most rows of a tile.
inline constexpr Index kTileRows = 96;

/// Rows [first, first + count) of a kv head, and the keys that the rules of position and length leave each.
struct TileRows {
  KvHead kv;
  Index first = 0;
  Index count = 0;
  KeyRange keys;    ///< of all rows together
  KeyRange common;  ///< what every row is left with
  std::array<KeyRange, kTileRows> ranges;

  void assign(const BoundMask& mask, const RowOrder& order, const KvHead& head, Index first_row,
              Index rows) noexcept;
};

/// What a kernel is told about the rows of a block, with the memory that it points to.
template <class A>
struct BlockRows {
  kernels::Visibility visibility;
  kernels::Modifiers<A> modifiers;
  kernels::Dropout<A> dropout;

  std::array<std::int32_t, kernels::kMostBlockRows> begin;
  std::array<std::int32_t, kernels::kMostBlockRows> end;
  std::array<const std::uint8_t*, kernels::kMostBlockRows> flags;
  std::array<const A*, kernels::kMostBlockRows> bias;
  std::array<A, kernels::kMostBlockRows> slopes;
  std::array<double, kernels::kMostBlockRows> offsets;
  std::array<std::uint32_t, kernels::kMostBlockRows> queries;
  std::array<std::uint32_t, kernels::kMostBlockRows> heads;
  std::array<std::array<std::uint8_t, kernels::kSegmentKeys>, kernels::kMostBlockRows> flag_rows;
  std::array<std::array<A, kernels::kSegmentKeys>, kernels::kMostBlockRows> bias_rows;
};

/// Describes rows [first, first + rows) of the tile against keys [first_key, first_key + keys), at most
/// kSegmentKeys. False where no row sees any of them.
template <class T>
bool describe(const Call<T>& call, const TileRows& tile, Index first, Index rows, Index first_key,
              Index keys, BlockRows<Arithmetic<T>>& block) noexcept;

/// The part of a kernel's block that is about rows [first, …) of the tile, as many as a block has, and those keys; no rows where
/// they see none. Refers to `scratch`.
template <class E, class T>
kernels::Block<Arithmetic<T>, E> described_block(const Call<T>& call, const TileRows& tile,
                                                 Index first, Index first_key, Index keys,
                                                 BlockRows<Arithmetic<T>>& scratch) noexcept {
  kernels::Block<Arithmetic<T>, E> block;
  block.rows = static_cast<std::int32_t>(std::min(call.kernels.block_rows, tile.count - first));
  block.depth = static_cast<std::int32_t>(call.shape().key_width);
  block.base = call.base();
  if (!describe(call, tile, first, block.rows, first_key, keys, scratch)) block.rows = 0;
  block.visibility = scratch.visibility;
  block.modifiers = scratch.modifiers;
  block.dropout = scratch.dropout;
  return block;
}

/// Whether the row sees a key at all: in range, kept by every rule, and not hidden by a bias of −∞.
template <class T>
bool sees_a_key(const Call<T>& call, Index b, Index h, Index t) noexcept;

}  // namespace qkv::engine
