#include "lab/similarity.h"

#include <cmath>

#include "engine/matrix_product.h"

namespace qkv::lab {
namespace {

engine::MatrixView<float> matrix(const Tensor<float, 2>& tensor) {
  return {tensor.data(), tensor.shape(0), tensor.shape(1), tensor.shape(1), 1};
}

Tensor<float, 2> normalised(const Tensor<float, 2>& rows) {
  Tensor<float, 2> result = rows;
  for (Index t = 0; t < rows.shape(0); ++t) {
    float squares = 0;
    for (Index d = 0; d < rows.shape(1); ++d) squares += rows(t, d) * rows(t, d);
    const float norm = std::sqrt(squares);
    for (Index d = 0; d < rows.shape(1); ++d) result(t, d) /= norm;
  }
  return result;
}

}  // namespace

void match_by_dot_product(const MatchingInputs& inputs, Tensor<float, 2>& scores,
                          const engine::Options& options) {
  engine::multiply(matrix(inputs.query), matrix(inputs.key).transposed(), engine::Result::Replaced,
                   scores.data(), options);
  const float scale = 1 / std::sqrt(static_cast<float>(inputs.query.shape(1)));
  for (float& score : scores.elements()) score *= scale;
}

void match_by_cosine(const MatchingInputs& inputs, Tensor<float, 2>& scores,
                     const engine::Options& options) {
  const Tensor<float, 2> query = normalised(inputs.query);
  const Tensor<float, 2> key = normalised(inputs.key);
  engine::multiply(matrix(query), matrix(key).transposed(), engine::Result::Replaced, scores.data(),
                   options);
}

void match_additively(const MatchingInputs& inputs, Tensor<float, 2>& scores) {
  const Index queries = inputs.query.shape(0);
  const Index keys = inputs.key.shape(0);
  const Index width = inputs.query.shape(1);
#pragma omp parallel for
  for (Index t = 0; t < queries; ++t) {
    for (Index s = 0; s < keys; ++s) {
      float sum = 0;
      for (Index d = 0; d < width; ++d)
        sum += inputs.weight(d) * std::tanh(inputs.query(t, d) + inputs.key(s, d));
      scores(t, s) = sum;
    }
  }
}

}  // namespace qkv::lab
