#include "explain/agreement.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace qkv::explain {
namespace {

void expect_pairs(std::span<const double> a, std::span<const double> b) {
  if (a.size() != b.size()) {
    throw std::invalid_argument("rank agreement: expected as many numbers on both sides");
  }
}

/// 1, 2, …, equal numbers with the mean of theirs.
std::vector<double> ranks(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return values[i]; });
  std::vector<double> result(values.size());
  for (std::size_t first = 0; first < order.size();) {
    std::size_t end = first + 1;
    while (end < order.size() && values[order[end]] == values[order[first]]) ++end;
    for (std::size_t i = first; i < end; ++i) {
      result[order[i]] = 0.5 * static_cast<double>(first + 1 + end);
    }
    first = end;
  }
  return result;
}

int sign(double value) { return (value > 0 ? 1 : 0) - (value < 0 ? 1 : 0); }

}  // namespace

double spearman(std::span<const double> a, std::span<const double> b) {
  expect_pairs(a, b);
  const std::vector<double> ranks_a = ranks(a);
  const std::vector<double> ranks_b = ranks(b);
  const double mean = 0.5 * static_cast<double>(a.size() + 1);
  double product = 0;
  double squares_a = 0;
  double squares_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    product += (ranks_a[i] - mean) * (ranks_b[i] - mean);
    squares_a += (ranks_a[i] - mean) * (ranks_a[i] - mean);
    squares_b += (ranks_b[i] - mean) * (ranks_b[i] - mean);
  }
  if (squares_a == 0 || squares_b == 0) return 0;
  return product / std::sqrt(squares_a * squares_b);
}

double kendall(std::span<const double> a, std::span<const double> b) {
  expect_pairs(a, b);
  double agreeing = 0;
  double varies_a = 0;
  double varies_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const int in_a = sign(a[i] - a[j]);
      const int in_b = sign(b[i] - b[j]);
      agreeing += in_a * in_b;
      varies_a += in_a * in_a;
      varies_b += in_b * in_b;
    }
  }
  if (varies_a == 0 || varies_b == 0) return 0;
  return agreeing / std::sqrt(varies_a * varies_b);
}

Interval wilson_interval(Index hits, Index trials) {
  if (trials == 0) return {};
  constexpr double kZ = 1.959963984540054;  // of 95 %
  const auto n = static_cast<double>(trials);
  const double share = static_cast<double>(hits) / n;
  const double shrink = 1 + kZ * kZ / n;
  const double middle = (share + kZ * kZ / (2 * n)) / shrink;
  const double half = kZ * std::sqrt(share * (1 - share) / n + kZ * kZ / (4 * n * n)) / shrink;
  // At the ends rounding would leave a little.
  return {hits == 0 ? 0 : middle - half, hits == trials ? 1 : middle + half};
}

std::vector<Index> ranking(std::span<const double> scores, std::span<const Index> tokens) {
  std::vector<Index> order(tokens.begin(), tokens.end());
  std::ranges::stable_sort(order, std::greater<>(),
                           [&](Index t) { return scores[static_cast<std::size_t>(t)]; });
  return order;
}

std::vector<double> chosen(std::span<const double> scores, std::span<const Index> tokens) {
  std::vector<double> result;
  for (const Index token : tokens) result.push_back(scores[static_cast<std::size_t>(token)]);
  return result;
}

}  // namespace qkv::explain
