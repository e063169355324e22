// An attention with a bug or none, and a batch on which every bug shows: what the tests of `bugs` are run on.
#pragma once

#include <optional>

#include "check/dump.h"
#include "model/attention.h"

namespace qkv::lab {

/// A block's attention in float64 with a bug or none, and a batch that lets every bug show: causal (with a window where
/// the bug is about it, or there is none), H = T, groups
/// of heads, the first sample padded on the left. Its output projection is the identity, so that columns are heads.
class TestedAttention {
 public:
  static constexpr Index kHeads = 8;
  static constexpr Index kTokens = 8;  ///< as many as heads: a mask on the head axis broadcasts
  static constexpr Index kKvHeads = 4;
  static constexpr Index kWidth = 64;
  static constexpr Index kHeadWidth = kWidth / kHeads;
  static constexpr Index kWindow = 5;
  static constexpr Index kPadding = 3;  ///< tokens before those of the first sample

  TestedAttention(std::optional<AttentionBug> bug, std::uint64_t seed);

  const BlockAttentionOptions& options() const noexcept { return options_; }
  const BlockAttentionParameters<double>& parameters() const noexcept { return parameters_; }
  const Tensor<double, 3>& input() const noexcept { return input_; }  ///< [2,T,D]
  const Tensor<bool, 2>& keep() const noexcept { return keep_; }      ///< [2,T]

  BlockAttentionResult<double> run() const;
  BlockAttentionResult<double> run(const Tensor<double, 3>& input) const;
  BlockAttentionResult<double> run(const Tensor<double, 3>& input,
                                   const Tensor<bool, 2>& keep) const;
  /// With other parameters of the same shapes.
  BlockAttentionResult<double> run_with(const BlockAttentionParameters<double>& parameters) const;
  BlockAttentionGradients<double> gradients(const Tensor<double, 3>& output_gradient) const;

  /// Queries, keys, values, what was meant and, as heads, what came out.
  Dump dump() const;

 private:
  BlockAttentionOptions options_;
  BlockAttentionParameters<double> parameters_;
  Tensor<double, 3> input_;
  Tensor<bool, 2> keep_;
};

}  // namespace qkv::lab
