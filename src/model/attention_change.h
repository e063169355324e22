// How the attention of a block differs from the right one, for experiments: other rules, other scores, or a bug. A model trains
// with the true gradient of whatever is computed, wrong or right.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "qkv/mask.h"

namespace qkv {

/// Projections that share one matrix: a single parameter, whose gradient is the sum over its uses.
enum class Tying : std::uint8_t {
  None,
  QueryIsKey,  ///< W_q = W_k; needs as many kv heads as heads
  KeyIsValue,  ///< W_k = W_v
};

/// How a query is held against a key.
enum class Matching : std::uint8_t {
  DotProduct,  ///< scale · q·k, scale 1/√Dk
  Cosine,  ///< scale · q·k / (|q|·|k|), scale √Dk: random directions give scores of variance 1
  /// scale · w[h]·tanh(q + k), scale 1 and w [H,Dk] a parameter (Bahdanau et al., 2015).
  Additive,
};

/// Classes of docs/bugs.md that a model can be trained with.
enum class AttentionBug : std::uint8_t {
  CausalDropped,       ///< M7: the rules of position are ignored
  CausalOffByOne,      ///< M8: a query sees one token of its future
  WindowOffByOne,      ///< M9: one token more than the window; needs one
  MaskAfterSoftmax,    ///< M3: hidden keys lose their weight after the normalisation
  PaddingDropped,      ///< M7: padding is ignored
  PaddingFilled,       ///< M5: padding gets the finite fill in place of −∞
  PaddingOnQueryAxis,  ///< M2: [B,1,T,1], with the finite fill
  PaddingOnHeadAxis,   ///< M13: [B,T,1,1], with the finite fill; needs T = H
  ScaleMissing,        ///< S1
  ScaleTwice,          ///< S3: 1/Dk
  SoftmaxOverQueries,  ///< X1: each key's weights sum to 1, hidden ones left out
  MergedByView,        ///< H2: [B,H,T,Dv] read as [B,T,H·Dv]
  KvHeadsTiled,        ///< G1: head h reads kv head h mod Hkv; needs 1 < Hkv < H
};

/// All of them, in the order of the enumeration.
std::span<const AttentionBug> attention_bugs();
/// "causal-off-by-one".
std::string_view name_of(AttentionBug bug);
/// The class in docs/bugs.md: "M8".
std::string_view class_of(AttentionBug bug);

struct AttentionChange {
  /// In place of the causal rule and the window. Padding is hidden besides.
  std::optional<Mask> mask = std::nullopt;
  std::optional<double> scale = std::nullopt;
  Tying tying = Tying::None;
  Matching matching = Matching::DotProduct;
  std::optional<AttentionBug> bug = std::nullopt;
  double fill = -1e9;  ///< of the bugs that put a number where −∞ belongs
};

}  // namespace qkv
