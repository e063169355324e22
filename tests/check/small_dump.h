// Dumps for tests, built by plain loops that share nothing with what is tested.
#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "check/dump.h"

namespace qkv::test {

template <int Rank>
Tensor<double, Rank> normal(const Extents<Rank>& shape, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> distribution;
  Tensor<double, Rank> tensor(shape);
  for (double& element : tensor.elements()) element = distribution(generator);
  return tensor;
}

/// q, k and v, no rules; out is to be filled.
inline Dump plain_dump(const AttentionShape& shape, DType ran_in = DType::Float64) {
  Dump dump;
  dump.shape = shape;
  dump.query = normal<4>({shape.batch, shape.heads, shape.queries, shape.key_width}, 1);
  dump.key = normal<4>({shape.batch, shape.kv_heads, shape.keys, shape.key_width}, 2);
  dump.value = normal<4>({shape.batch, shape.kv_heads, shape.keys, shape.value_width}, 3);
  dump.has_heads = true;
  dump.scale = 1 / std::sqrt(static_cast<double>(shape.key_width));
  dump.context = Tensor<double, 4>({shape.batch, shape.heads, shape.queries, shape.value_width});
  dump.ran_in = ran_in;
  return dump;
}

struct Place {
  Index b;
  Index h;
  Index t;
  Index s;
};

inline double product(const Dump& dump, const Place& at) {
  double sum = 0;
  for (Index d = 0; d < dump.shape.key_width; ++d) {
    sum += dump.query(at.b, at.h, at.t, d) * dump.key(at.b, at.h / dump.shape.group(), at.s, d);
  }
  return sum;
}

/// out = softmax(score)·v; a score of −∞ hides, a row of them gives 0.
inline void attend(Dump& dump, const std::function<double(const Place&)>& score) {
  const AttentionShape& shape = dump.shape;
  for (Index b = 0; b < shape.batch; ++b) {
    for (Index h = 0; h < shape.heads; ++h) {
      for (Index t = 0; t < shape.queries; ++t) {
        std::vector<double> weight;
        double sum = 0;
        for (Index s = 0; s < shape.keys; ++s) {
          weight.push_back(std::exp(score({b, h, t, s})));
          sum += weight.back();
        }
        for (Index d = 0; d < shape.value_width; ++d) {
          double value = 0;
          for (Index s = 0; s < shape.keys; ++s) {
            value += weight[static_cast<std::size_t>(s)] * dump.value(b, h / shape.group(), s, d);
          }
          (*dump.context)(b, h, t, d) = sum > 0 ? value / sum : 0;
        }
      }
    }
  }
}

inline constexpr double kHidden = -std::numeric_limits<double>::infinity();

}  // namespace qkv::test
