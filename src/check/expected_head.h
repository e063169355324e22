// One head on its way through the expected results: everything of it that gradients need, too.
#pragma once

#include "check/expected.h"
#include "reference/head.h"

namespace qkv {

struct ExpectedHead {
  explicit ExpectedHead(const AttentionShape& shape)
      : head(shape), scores(shape), score_variance({shape.queries, shape.keys}) {}

  reference::Head head;
  reference::HeadScores scores;
  Tensor<double, 2> score_variance;  // [T,S]
  Tensor<double, 2> query_variance;  // [T,Dk]
  Tensor<double, 2> key_variance;    // [S,Dk]
  Tensor<double, 2> value_variance;  // [S,Dv]
};

/// Row t of a matrix.
inline std::span<const double> row_of(const Tensor<double, 2>& matrix, Index t) {
  const auto width = static_cast<std::size_t>(matrix.shape(1));
  return matrix.elements().subspan(static_cast<std::size_t>(t) * width, width);
}

/// Row t of head h.
inline std::span<double> row_of(Tensor<double, 4>& tensor, Index b, Index h, Index t) {
  const auto width = static_cast<std::size_t>(tensor.shape(3));
  const Index row = (b * tensor.shape(1) + h) * tensor.shape(2) + t;
  return tensor.elements().subspan(static_cast<std::size_t>(row) * width, width);
}

inline std::span<const double> row_of(const Tensor<double, 4>& tensor, Index b, Index h, Index t) {
  const auto width = static_cast<std::size_t>(tensor.shape(3));
  const Index row = (b * tensor.shape(1) + h) * tensor.shape(2) + t;
  return tensor.elements().subspan(static_cast<std::size_t>(row) * width, width);
}

/// Adds this head's part of the variances of the gradients to `expected`, where the dump has them.
void add_gradient_variances(const Dump& dump, const AttentionInputs<double>& inputs,
                            const AttentionPlan& plan, const ExpectedHead& one, Expected& expected);
/// The gradients themselves, and their way back through rotary positions and QK-norm.
void finish_gradients(const Dump& dump, const AttentionInputs<double>& inputs, Expected& expected);

}  // namespace qkv
