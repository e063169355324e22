// The table of cases in which our module is held against the official one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "qkv/tensor.h"

namespace qkv {

enum class AlignMask : std::uint8_t {
  None,
  Causal,
  Padding,
  CausalAndPadding,
  Boolean,         ///< [T,S]
  BooleanPerHead,  ///< [B·H,T,S]
  Bias,            ///< float, [T,S]
  BiasPerHead,     ///< float, [B·H,T,S]
  BiasAndPadding,
  HiddenSample,         ///< the last sample is all padding
  CausalAndLeftPadding  ///< padded queries see no key
};

/// "causal and padding", …
std::string name_of(AlignMask mask);

enum class AlignInputs : std::uint8_t { Self, Cross };
enum class AlignBiases : std::uint8_t { None, All };

struct AlignCase {
  AlignMask mask = AlignMask::None;
  AlignInputs inputs = AlignInputs::Self;
  Index batch = 0;        ///< B
  Index heads = 0;        ///< H
  Index queries = 0;      ///< T
  Index keys = 0;         ///< S; T in self attention
  Index model_width = 0;  ///< D
  AlignBiases biases = AlignBiases::All;
  std::optional<Index> key_width;    ///< kdim; D where absent
  std::optional<Index> value_width;  ///< vdim; D where absent
  bool is_lesson = false;  ///< inputs and weights are drawn by PyTorch, as the lesson does

  bool is_causal() const noexcept;
  bool has_padding() const noexcept;
  /// Whether the mask is another one for each sample and head.
  bool mask_is_per_head() const noexcept;
  /// Whether some query sees no key: there PyTorch may give NaN.
  bool hides_rows() const noexcept;

  /// "causal, self: B=2 H=8 T=S=513 D=64, no biases"; no two cases share it.
  std::string describe() const;
};

/// The lesson's own case first.
const std::vector<AlignCase>& align_cases();

}  // namespace qkv
