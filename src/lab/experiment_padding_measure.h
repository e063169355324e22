// The padding mask on the wrong axis, on a sample with two valid tokens: the measurements of `padding`.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "lab/experiment_parts.h"
#include "lab/hand_written.h"

namespace qkv::lab {

/// The axis of [B,H,T,S] on which the flags [B,T] were put.
enum class PaddingForm : std::uint8_t {
  Key,    ///< [B,1,1,T], right
  Head,   ///< [B,T,1,1]
  Query,  ///< [B,1,T,1]
};
inline constexpr std::array<PaddingForm, 3> kPaddingForms = {PaddingForm::Key, PaddingForm::Head,
                                                             PaddingForm::Query};

/// Two samples: the first has two valid tokens, the second is full.
struct PaddedBatch {
  Tensor<double, 4> query;  ///< [2,H,T,Dh]
  Tensor<double, 4> key;
  Tensor<double, 4> value;
  Tensor<bool, 2> padding;  ///< [2,T], true at padding
  Index heads = 0;
  Index tokens = 0;
};

struct BatchSizes {
  Index heads = 4;
  Index tokens = 4;
  bool padded_left = false;
};
inline constexpr Index kValidTokens = 2;

PaddedBatch draw_padded(const BatchSizes& sizes, std::uint64_t seed);

/// The flags on that axis, with extent 1 on the others.
Tensor<bool, 4> hides(const PaddedBatch& batch, PaddingForm form);

/// By hand; throws std::invalid_argument where the mask does not broadcast. `causal` hides the future besides.
HandWrittenResults attend_padded(const PaddedBatch& batch, PaddingForm form, double fill,
                                 bool causal = false);
/// The library, with Mask::key_padding.
AttentionResults attend_padded(const PaddedBatch& batch, bool causal = false);

/// What a form hides in the first sample, counted over heads, queries and keys.
struct HiddenCells {
  Index hidden = 0;
  Index valid_hidden = 0;          ///< keys that are no padding
  Index padding_seen = 0;          ///< keys that are padding
  std::vector<Index> blind_heads;  ///< hidden whole
  std::vector<Index> blind_rows;   ///< queries hidden in every head
};
HiddenCells hidden_cells(const PaddedBatch& batch, PaddingForm form);

/// What checks that people have would say, and what they would not.
struct PaddingOutcome {
  bool right_shape = false;
  double nan_part = 0;        ///< of the context in rows of valid tokens
  double sums_to_one = 0;     ///< part of the rows of valid tokens
  double padding_weight = 0;  ///< mean over rows of valid tokens of the first sample; NaN left out
  double error =
      0;  ///< of the first sample's context in rows of valid tokens, relative to the largest entry; NaN left out
  double full_sample_error = 0;  ///< the same of the second sample
  std::string diagnosis;         ///< classes that `qkv check` names, or empty
};
PaddingOutcome outcome(const PaddedBatch& batch, PaddingForm form, double fill,
                       bool causal = false);

/// The error of leaving the padding mask out, in rows of valid tokens of the first sample.
double error_without_mask(const PaddedBatch& batch, bool causal);

}  // namespace qkv::lab
