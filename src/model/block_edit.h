// A look at what flows through a block, and a hand on it: for interventions.
#pragma once

#include <cstdint>
#include <functional>

#include "qkv/tensor.h"

namespace qkv {

/// Where a block's numbers can be changed before they are used, in the order in which they are computed. The shapes are
/// [B,heads,T,width], with one head where there are none.
enum class BlockSite : std::uint8_t {
  Value,              ///< [B,Hkv,T,Dv], projected
  Context,            ///< [B,H,T,Dv], before the output projection
  AttentionOutput,    ///< [B,1,T,D], what the attention adds
  AttentionResidual,  ///< [B,1,T,D], what it is added to
  MlpOutput,          ///< [B,1,T,D], what the MLP adds
  MlpResidual,        ///< [B,1,T,D], what it is added to
};

/// Called at each site. What it writes is what the block goes on with, in every sample by itself.
template <class T>
using BlockEdit = std::function<void(BlockSite site, const TensorView<T, 4>& values)>;

}  // namespace qkv
