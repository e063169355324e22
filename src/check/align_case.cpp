#include "check/align_case.h"

#include <fmt/format.h>

namespace qkv {

std::string name_of(AlignMask mask) {
  switch (mask) {
    case AlignMask::None:
      return "no mask";
    case AlignMask::Causal:
      return "causal";
    case AlignMask::Padding:
      return "padding";
    case AlignMask::CausalAndPadding:
      return "causal and padding";
    case AlignMask::Boolean:
      return "boolean [T,S]";
    case AlignMask::BooleanPerHead:
      return "boolean per head [B*H,T,S]";
    case AlignMask::Bias:
      return "float bias [T,S]";
    case AlignMask::BiasPerHead:
      return "float bias per head [B*H,T,S]";
    case AlignMask::BiasAndPadding:
      return "float bias and padding";
    case AlignMask::HiddenSample:
      return "one sample all padding";
    case AlignMask::CausalAndLeftPadding:
      return "causal and left padding";
  }
  return "unknown";
}

bool AlignCase::is_causal() const noexcept {
  return mask == AlignMask::Causal || mask == AlignMask::CausalAndPadding ||
         mask == AlignMask::CausalAndLeftPadding;
}

bool AlignCase::has_padding() const noexcept {
  return mask == AlignMask::Padding || mask == AlignMask::CausalAndPadding ||
         mask == AlignMask::BiasAndPadding || hides_rows();
}

bool AlignCase::mask_is_per_head() const noexcept {
  return mask == AlignMask::BooleanPerHead || mask == AlignMask::BiasPerHead;
}

bool AlignCase::hides_rows() const noexcept {
  return mask == AlignMask::HiddenSample || mask == AlignMask::CausalAndLeftPadding;
}

std::string AlignCase::describe() const {
  const bool self = inputs == AlignInputs::Self;
  std::string text = fmt::format("{}{}, {}: B={} H={} ", is_lesson ? "the lesson's case, " : "",
                                 name_of(mask), self ? "self" : "cross", batch, heads);
  text += self ? fmt::format("T=S={} ", queries) : fmt::format("T={} S={} ", queries, keys);
  text += fmt::format("D={}", model_width);
  if (key_width) text += fmt::format(" kdim={}", *key_width);
  if (value_width) text += fmt::format(" vdim={}", *value_width);
  text += biases == AlignBiases::All ? ", biases" : ", no biases";
  return text;
}

const std::vector<AlignCase>& align_cases() {
  using enum AlignMask;
  using enum AlignInputs;
  constexpr auto with = AlignBiases::All;
  constexpr auto without = AlignBiases::None;
  // Sizes differ pairwise wherever PyTorch allows it, so that no exchange of two axes can go unseen.
  static const std::vector<AlignCase> cases = {
      // mask, inputs, B, H, T, S, D, biases, kdim, vdim, lesson
      {Causal, Self, 2, 4, 5, 5, 16, without, {}, {}, true},
      {None, Self, 2, 3, 5, 5, 48, with, {}, {}},
      {None, Self, 3, 8, 1, 1, 64, without, {}, {}},
      {None, Cross, 2, 1, 65, 5, 24, with, {}, {}},
      {None, Cross, 2, 3, 513, 65, 24, without, 20, 28},
      {Causal, Self, 2, 1, 5, 5, 32, with, {}, {}},
      {Causal, Self, 1, 8, 513, 513, 64, without, {}, {}},
      {Causal, Cross, 2, 3, 65, 5, 24, with, {}, {}},
      {Padding, Self, 5, 3, 65, 65, 48, with, {}, {}},
      {Padding, Cross, 3, 8, 1, 5, 64, with, 40, 56},
      {Padding, Cross, 2, 1, 513, 65, 16, without, {}, {}},
      {CausalAndPadding, Self, 3, 8, 5, 5, 64, with, {}, {}},
      {CausalAndPadding, Self, 2, 3, 513, 513, 24, without, {}, {}},
      {CausalAndPadding, Cross, 3, 1, 65, 5, 16, with, {}, {}},
      {Boolean, Self, 2, 8, 65, 65, 64, with, {}, {}},
      {Boolean, Cross, 2, 3, 5, 65, 24, without, 20, 20},
      {Boolean, Cross, 3, 8, 1, 513, 32, with, {}, {}},
      {BooleanPerHead, Self, 2, 3, 65, 65, 24, without, {}, {}},
      {BooleanPerHead, Cross, 3, 8, 5, 7, 64, with, 40, 56},
      {Bias, Self, 2, 8, 65, 65, 64, with, {}, {}},
      {Bias, Cross, 3, 1, 513, 5, 16, without, 20, 28},
      {BiasPerHead, Cross, 2, 3, 5, 65, 24, with, {}, {}},
      {BiasAndPadding, Self, 5, 8, 65, 65, 32, with, {}, {}},
      {HiddenSample, Self, 4, 3, 5, 5, 48, without, {}, {}},
      {CausalAndLeftPadding, Self, 2, 3, 5, 5, 48, without, {}, {}},
  };
  return cases;
}

}  // namespace qkv
