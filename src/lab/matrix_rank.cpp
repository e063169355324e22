#include "lab/matrix_rank.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace qkv::lab {
namespace {

constexpr double kNegligible = 1e-6;

/// The row and column, `from` or later, of the largest magnitude.
std::pair<Index, Index> largest_from(const Tensor<double, 2>& matrix, Index from) {
  std::pair<Index, Index> at{from, from};
  for (Index i = from; i < matrix.shape(0); ++i) {
    for (Index j = from; j < matrix.shape(1); ++j) {
      if (std::fabs(matrix(i, j)) > std::fabs(matrix(at.first, at.second))) at = {i, j};
    }
  }
  return at;
}

}  // namespace

Index matrix_rank(Tensor<double, 2> matrix) {
  const Index most = std::min(matrix.shape(0), matrix.shape(1));
  double first = 0;
  for (Index k = 0; k < most; ++k) {
    const auto [row, column] = largest_from(matrix, k);
    for (Index j = 0; j < matrix.shape(1); ++j) std::swap(matrix(k, j), matrix(row, j));
    for (Index i = 0; i < matrix.shape(0); ++i) std::swap(matrix(i, k), matrix(i, column));
    const double pivot = matrix(k, k);
    if (k == 0) first = std::fabs(pivot);
    if (std::fabs(pivot) <= kNegligible * first) return k;
    for (Index i = k + 1; i < matrix.shape(0); ++i) {
      const double factor = matrix(i, k) / pivot;
      for (Index j = k; j < matrix.shape(1); ++j) matrix(i, j) -= factor * matrix(k, j);
    }
  }
  return most;
}

}  // namespace qkv::lab
