// Rotary positions: pairs of a head's elements are rotated by an angle that grows with the position, so
// that scores depend on the distance of query and key. Source: Su et al., "RoFormer" (2021), eq. 34.
#pragma once

#include <optional>

#include "qkv/tensor.h"

namespace qkv {

/// Which elements of a head are rotated together.
enum class RotaryPairing : std::uint8_t {
  Halves,       ///< i and i + width/2 (GPT-NeoX, Llama as Hugging Face stores it)
  Interleaved,  ///< 2i and 2i + 1 (the paper, GPT-J)
};

struct RotaryOptions {
  RotaryPairing pairing = RotaryPairing::Halves;
  /// Pair i turns by position · base^(−2i/width). Positive and finite.
  double base = 10000.0;
  /// How many leading elements of a head turn. Even; all where absent.
  std::optional<Index> width = std::nullopt;
};

/// output[b,h,t,:] = input[b,h,t,:] rotated by positions[b,t]. input and output are [B,H,T,D], positions
/// [B,T] or [1,T]; any strides. `output` may be `input` itself (same data and strides) but may not
/// overlap it otherwise. T is double or float; angles are computed in float64.
/// Throws std::invalid_argument where shapes, width or base do not fit, or views overlap.
template <class T>
void apply_rotary(const TensorView<const T, 4>& input, const TensorView<const Index, 2>& positions,
                  const RotaryOptions& options, const TensorView<T, 4>& output);

/// The derivative: rotates output_gradient back. The same arguments and errors.
template <class T>
void apply_rotary_backward(const TensorView<const T, 4>& output_gradient,
                           const TensorView<const Index, 2>& positions,
                           const RotaryOptions& options, const TensorView<T, 4>& input_gradient);

}  // namespace qkv
