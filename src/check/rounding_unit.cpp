#include "check/rounding_unit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <stdexcept>

#include "base/rounding.h"

namespace qkv {
namespace {

/// A hand-written kernel stores the product and the scaled product, then what it divides by the cap and the capped score, and
/// the sum with a bias.
constexpr double kScoreRoundings = 2;
constexpr double kCapRoundings = 2;
constexpr double kAddedRoundings = 1;
/// The exponential and the quotient; a fused kernel stores one of them.
constexpr double kWeightRoundings = 2;

constexpr double square(double x) { return x * x; }

/// Weights that are equal once they are stored were all rounded by the same: Σ (Σ_group p)² − Σ p² over groups of them, from 0
/// where no two are equal to 1 − 1/n where all n are.
double equal_share(const Arithmetic& arithmetic, std::span<const double> weight) {
  if (arithmetic.storage == arithmetic.compute) return 0;  // of float32 and float64 few are equal
  constexpr unsigned kSignificandBits = 52;
  constexpr std::size_t kGroups = 1U << 13U;
  const auto dropped =
      kSignificandBits + 1 - static_cast<unsigned>(-std::ilogb(arithmetic.storage));
  thread_local std::array<double, kGroups> sums;
  sums.fill(0);
  double own = 0;
  for (const double one : weight) {
    sums[(std::bit_cast<std::uint64_t>(one) >> dropped) % kGroups] += one;
    own += one * one;
  }
  double shared = 0;
  for (const double sum : sums) shared += sum * sum;
  return std::max(0.0, shared - own);
}

/// Variance of a number that lies anywhere within half a spacing.
constexpr double spacing_variance(double spacing) { return spacing * spacing / 12; }

/// Distance of the numbers next to 0: where vector units flush what is below the smallest normal number, that number; of float64 the
/// smallest whose square is still a number.
double smallest(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return 0x1p-500;
    case DType::Float16:
      return 0x1p-24;
    default:
      return 0x1p-126;
  }
}

double largest(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return 0x1.fffffffffffffp1023;
    case DType::Float32:
      return 0x1.fffffep127;
    case DType::Float16:
      return 65504;
    default:
      return 0x1.fep127;
  }
}

void expect_floating(const char* argument, DType dtype) {
  if (unit_roundoff(dtype) > 0) return;
  throw std::invalid_argument(
      fmt::format("check: {}: expected a floating-point dtype, got {}", argument, name_of(dtype)));
}

}  // namespace

// p·δ while the error δ is small, then p·(exp(δ) − 1), and 1 where the key overtakes all others: exp(δ) > 1/p.
double weight_effect(double weight, double score_variance) {
  constexpr double kSmall = 0.01;
  if (score_variance <= kSmall || weight == 0) return square(weight) * score_variance;
  const double gap = -std::log(weight);
  if (gap >= 2 * score_variance) {
    return square(weight) * (std::exp(2 * score_variance) - 2 * std::exp(score_variance / 2) + 1);
  }
  // The tail beyond the gap, where the weight grows by 1 − p, what is below it by Mills' ratio, and the half that lose it.
  const double deviation = std::sqrt(score_variance);
  const double at = gap / deviation;
  const double tail = std::erfc(at / std::numbers::sqrt2) / 2;
  const double density = std::exp(-at * at / 2) / std::sqrt(2 * std::numbers::pi);
  const double ratio = std::sqrt(std::numbers::pi / 2);
  const double gains = tail + density * std::min(ratio, deviation / (2 * score_variance - gap));
  return square(1 - weight) * gains + square(weight) / 2;
}

Arithmetic arithmetic_of(DType ran_in, DType stored_in) {
  expect_floating("dtype", ran_in);
  expect_floating("out", stored_in);
  const double own = unit_roundoff(ran_in);
  return {.storage = own,
          .compute = std::min(own, kFloat32Roundoff),
          .output = std::max(own, unit_roundoff(stored_in)),
          .storage_spacing = smallest(ran_in),
          .storage_largest = largest(ran_in),
          .output_spacing = std::max(smallest(ran_in), smallest(stored_in)),
          .output_largest = std::min(largest(ran_in), largest(stored_in))};
}

double storage_variance(const Arithmetic& arithmetic, double magnitude, double roundings) {
  return roundings * (square(kRoundingRms * arithmetic.storage * magnitude) +
                      spacing_variance(arithmetic.storage_spacing));
}

double sum_variance(const Arithmetic& arithmetic, double squares, double sum, Index terms) {
  // Partial sums grow as a random walk does, or evenly; each is rounded, and so is each product.
  const auto n = static_cast<double>(terms);
  return square(kRoundingRms * arithmetic.compute) * ((1 + n / 2) * squares + n / 3 * sum * sum);
}

double output_variance(const Arithmetic& arithmetic, double result) {
  return square(kRoundingRms * arithmetic.output * result) +
         spacing_variance(arithmetic.output_spacing);
}

void score_variance(const Arithmetic& arithmetic, const ScoreRow& row, std::span<double> variance) {
  const std::size_t width = row.query.size();
  const double scale = row.scale * row.scale;
  const double roundings = kScoreRoundings + (row.capped ? kCapRoundings : 0) +
                           (row.added.empty() ? 0 : kAddedRoundings);
  for (std::size_t s = 0; s < row.score.size(); ++s) {
    variance[s] = 0;
    if (row.score[s] == -std::numeric_limits<double>::infinity()) continue;
    const double* key = row.key.data() + s * width;
    const double* key_variance = row.key_variance.data() + s * width;
    double entering = 0;
    double squares = 0;
    double sum = 0;
#pragma omp simd reduction(+ : entering, squares, sum)
    for (std::size_t i = 0; i < width; ++i) {
      const double product = row.query[i] * key[i];
      sum += product;
      squares += product * product;
      entering +=
          row.query_variance[i] * (key[i] * key[i]) + row.query[i] * row.query[i] * key_variance[i];
    }
    const double added = row.added.empty() ? 0 : row.added[s];
    const double magnitude = std::max({std::fabs(row.scale * sum), std::fabs(row.score[s]), added});
    variance[s] = scale * sum_variance(arithmetic, squares, sum, static_cast<Index>(width));
    // A product that overflows is one that a right kernel kept in its wider arithmetic, unscaled.
    if (std::fabs(sum) > arithmetic.storage_largest) continue;
    variance[s] += scale * entering + storage_variance(arithmetic, magnitude, roundings);
  }
}

void context_variance(const Arithmetic& arithmetic, const ContextRow& row,
                      std::span<double> variance) {
  const std::size_t width = row.context.size();
  const double weight_rounding = kWeightRoundings * (square(kRoundingRms * arithmetic.storage) +
                                                     square(kRoundingRms * arithmetic.compute));
  const double weight_spacing = spacing_variance(arithmetic.storage_spacing);
  std::fill(variance.begin(), variance.end(), 0.0);
  double terms = 0;
  for (std::size_t s = 0; s < row.weight.size(); ++s) {
    const double weight = row.weight[s];
    if (weight == 0) continue;
    ++terms;
    const double* value = row.value.data() + s * width;
    const double weight2 = weight * weight;
    const double score = weight_effect(weight, row.score_variance[s]);
    const double own = weight2 * weight_rounding + weight_spacing;
#pragma omp simd
    for (std::size_t d = 0; d < width; ++d) {
      const double distance = value[d] - row.context[d];
      variance[d] += score * (distance * distance) + own * (value[d] * value[d]);
    }
    if (row.value_variance.empty()) continue;
    const double* value_variance = row.value_variance.data() + s * width;
    for (std::size_t d = 0; d < width; ++d) variance[d] += weight2 * value_variance[d];
  }
  const double equal = equal_share(arithmetic, row.weight) * kWeightRoundings *
                       square(kRoundingRms * arithmetic.storage);
  // The sum over the keys, and the sum of the weights that it is divided by: partial sums are as large as the result.
  const double sum = square(kRoundingRms * arithmetic.compute) * (1 + terms);
  for (std::size_t d = 0; d < width; ++d) {
    variance[d] +=
        (equal + sum) * square(row.context[d]) + output_variance(arithmetic, row.context[d]);
  }
}

void weight_variance(const Arithmetic& arithmetic, std::span<const double> weight,
                     std::span<const double> score_variance, std::span<double> variance) {
  double shared = 0;  // Σ_j p_j²·e_j², by way of the sum
  for (std::size_t s = 0; s < weight.size(); ++s) {
    shared += weight_effect(weight[s], score_variance[s]);
  }
  for (std::size_t s = 0; s < weight.size(); ++s) {
    const double own = weight_effect(weight[s], score_variance[s]);
    const double others = std::max(0.0, shared - own);
    variance[s] = own * square(1 - weight[s]) + square(weight[s]) * others +
                  storage_variance(arithmetic, weight[s], kWeightRoundings) +
                  output_variance(arithmetic, weight[s]);
  }
}

double log_sum_exp_variance(const Arithmetic& arithmetic, double log_sum_exp,
                            std::span<const double> weight,
                            std::span<const double> score_variance) {
  double variance = storage_variance(arithmetic, std::fabs(log_sum_exp)) +
                    output_variance(arithmetic, log_sum_exp);
  double terms = 0;
  for (std::size_t s = 0; s < weight.size(); ++s) {
    if (weight[s] == 0) continue;
    ++terms;
    variance += square(weight[s]) * (score_variance[s] + square(kRoundingRms * arithmetic.storage));
  }
  // The logarithm makes an absolute error of the relative one of the sum.
  return variance + square(kRoundingRms * arithmetic.compute) * (1 + terms);
}

}  // namespace qkv
