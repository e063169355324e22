// What `causal` asks of a trained model besides its loss.
#pragma once

#include <string>

#include "lab/experiment_training.h"

namespace qkv::lab {

inline constexpr Index kInfluenceTokens = 12;

/// [T,T]: how far the logits of position t move when token s becomes another; exactly 0 where it has no influence.
Tensor<double, 2> influences(const Decoder<float>& decoder, const Task& task, std::uint64_t seed);
/// The largest entry with s > t; of one row, or of all.
double largest_of_future(const Tensor<double, 2>& influence);
double largest_of_future(const Tensor<double, 2>& influence, Index t);

/// What the model writes after "Alice ".
std::string written_text(const Decoder<float>& decoder, std::uint64_t seed);
/// The part of a text's bytes that are in words of three letters or more that `corpus` has, too.
double part_in_words(const std::string& text, const std::string& corpus);
/// Line ends as blanks, and bytes that are no printable ASCII as "·".
std::string printable(const std::string& text);

}  // namespace qkv::lab
