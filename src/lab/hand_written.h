// Attention as it is often written by hand: a score matrix, a mask that is put into it somehow, a softmax. Experiments hold it
// against the library to show what its mistakes do.
#pragma once

#include <limits>
#include <optional>

#include "qkv/dtype.h"
#include "qkv/tensor.h"

namespace qkv::lab {

/// How a boolean tensor becomes a mask.
enum class MaskedBy : std::uint8_t {
  Filling,        ///< hidden scores become `fill`: masked_fill
  Adding,         ///< `fill` is added to hidden scores
  Multiplying,    ///< hidden weights become 0 after the softmax
  Renormalizing,  ///< the same, and each row is divided by what is left
};

struct HandWritten {
  TensorView<const double, 4> query;  ///< [B,H,T,Dk]
  TensorView<const double, 4> key;    ///< [B,H,S,Dk]
  TensorView<const double, 4> value;  ///< [B,H,S,Dv]
  /// true hides. Broadcast with the scores by the rule of NumPy and PyTorch: either side may grow.
  std::optional<TensorView<const bool, 4>> hides = std::nullopt;
  MaskedBy masked_by = MaskedBy::Filling;
  double fill = -std::numeric_limits<double>::infinity();
  /// A second mask, whose fill is added besides: where both hide, twice. Only with MaskedBy::Adding.
  std::optional<TensorView<const bool, 4>> also_hides = std::nullopt;
  std::optional<double> scale = std::nullopt;  ///< 1/√Dk where absent
  DType dtype = DType::Float64;                ///< every step is rounded to it
};

struct HandWrittenResults {
  Tensor<double, 4> weights;  ///< [B,H,T,S], or what that grows to
  Tensor<double, 4> context;  ///< the same with Dv
};

/// Throws std::invalid_argument as PyTorch would where the mask does not broadcast with the scores.
HandWrittenResults attend_by_hand(const HandWritten& call);

/// The shape that two shapes broadcast to; absent where they do not.
std::optional<Extents<4>> broadcast_shape(const Extents<4>& a, const Extents<4>& b);

/// The nearest number of a floating-point type.
double rounded(DType dtype, double value);
/// The most negative finite number of it.
double lowest(DType dtype);

}  // namespace qkv::lab
