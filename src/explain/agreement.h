// How two rankings agree, and how sure a share is.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "qkv/tensor.h"

namespace qkv::explain {

/// Pearson's correlation of the ranks, equal ones sharing the mean of theirs: −1 to 1, 0 where one side does not vary. Source:
/// Spearman, "The Proof and Measurement of Association between Two Things" (1904).
double spearman(std::span<const double> a, std::span<const double> b);

/// τ-b: agreeing pairs less disagreeing ones, ties left out; 0 where one side does not vary. Source: Kendall, "The Treatment of Ties
/// in Ranking Problems" (1945).
double kendall(std::span<const double> a, std::span<const double> b);

struct Interval {
  double low = 0;
  double high = 1;
};
/// 95 % for a share of hits among trials; [0, 1] without trials. Source: Wilson, "Probable Inference, the Law of Succession, and
/// Statistical Inference" (1927).
Interval wilson_interval(Index hits, Index trials);

/// The tokens by falling score, the first of equal ones first.
std::vector<Index> ranking(std::span<const double> scores, std::span<const Index> tokens);

/// The scores of some tokens, in their order.
std::vector<double> chosen(std::span<const double> scores, std::span<const Index> tokens);

}  // namespace qkv::explain
