// What rounding makes of attention in a given dtype: the variance of each result of a right kernel, as arrays of one row.
// Its square root is the unit that `qkv check` measures errors in.
//
// The kernel is one that people write: products and sums in float32 where it stores 16 bits, everything else rounded to what it
// stores: q and k once after they were scaled, turned or normed, the product, the scaled score, what is added or subtracted
// there, the weight, the result. A fused kernel leaves some of these out and errs less. To first order, with p, s, o exact:
//
//   δs_j = scale·Σ_i (δq_i·k_ji + q_i·δk_ji) + roundings of s_j              variance e_j²
//   δo   = Σ_j p_j·(v_j − o)·δs_j + Σ_j δp_j·v_j + Σ_j p_j·δv_j + rounding of o
//
// The first term of δo is the derivative of the softmax, δp_j the rounding of the weight itself, which no normalisation follows; of
// weights that are stored as the same number it is the same, so there it does not average out.
// Where scores are so large that e_j is no longer small, what δs_j makes of the weight is that of a log-normal number, at most 1.
// Sources: the model of one rounding in base/rounding.h; Higham, "Accuracy and Stability of Numerical Algorithms" (2002), ch. 2
// (gradual underflow, 2.8), 3 and 4 (sums).
#pragma once

#include <span>

#include "qkv/dtype.h"
#include "qkv/tensor.h"

namespace qkv {

/// The arithmetic of a kernel. Roundoffs are half the distance of 1 and the next number.
struct Arithmetic {
  double storage = 0;  ///< of what it keeps between steps
  double compute = 0;  ///< of its sums: float32 where it stores 16 bits
  double output = 0;   ///< of the results in the file: the coarser of its own and the file's dtype
  double storage_spacing = 0;  ///< distance of the smallest numbers: underflow, gradual or not
  double storage_largest = 0;  ///< what is larger has not been stored by a right kernel
  double output_spacing = 0;
  double output_largest = 0;  ///< larger results become infinite
};

/// Throws std::invalid_argument unless both are floating-point types.
Arithmetic arithmetic_of(DType ran_in, DType stored_in);

/// Variance of `roundings` roundings of a number of this magnitude to what the kernel stores.
double storage_variance(const Arithmetic& arithmetic, double magnitude, double roundings = 1);
/// The same of a sum of `terms` products, kept in `compute`: `squares` is the sum of their squares, `sum` their sum.
double sum_variance(const Arithmetic& arithmetic, double squares, double sum, Index terms);
/// Of the one rounding to the file.
double output_variance(const Arithmetic& arithmetic, double result);

/// One query's scores and what they are made of; matrices are row-major.
struct ScoreRow {
  std::span<const double> query;           ///< [Dk], as it enters the product
  std::span<const double> query_variance;  ///< [Dk]
  std::span<const double> key;             ///< [S,Dk]
  std::span<const double> key_variance;    ///< [S,Dk]
  double scale = 1;
  std::span<const double>
      added;            ///< [S], magnitude of what is added to the scaled product, or empty
  bool capped = false;  ///< by a softcap
  std::span<const double> score;  ///< [S], as it enters the softmax; −∞ where nothing depends on it
};
/// Writes e_j² [S]; 0 where the score is −∞.
void score_variance(const Arithmetic& arithmetic, const ScoreRow& row, std::span<double> variance);

/// One query's weights and what they make.
struct ContextRow {
  std::span<const double> weight;          ///< [S]
  std::span<const double> score_variance;  ///< [S]
  std::span<const double> value;           ///< [S,Dv]
  std::span<const double> value_variance;  ///< [S,Dv], or empty: exact
  std::span<const double> context;         ///< [Dv]
};
/// Writes the variance of the context [Dv], its rounding to the file included.
void context_variance(const Arithmetic& arithmetic, const ContextRow& row,
                      std::span<double> variance);
/// Mean square of what a normal error of this variance in a score makes of its weight, however large the error is.
double weight_effect(double weight, double score_variance);
/// Writes that of the weights [S].
void weight_variance(const Arithmetic& arithmetic, std::span<const double> weight,
                     std::span<const double> score_variance, std::span<double> variance);
double log_sum_exp_variance(const Arithmetic& arithmetic, double log_sum_exp,
                            std::span<const double> weight, std::span<const double> score_variance);

}  // namespace qkv
