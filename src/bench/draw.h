// Random inputs: normal, for zeros and small ranges are faster to compute with than what a model holds.
#pragma once

#include <cstdint>
#include <random>

#include "qkv/tensor.h"

namespace qkv::bench {

class Draw {
 public:
  template <class T, int Rank>
  Tensor<T, Rank> normal(const Extents<Rank>& shape, double deviation = 1) {
    Tensor<T, Rank> result(shape);
    for (T& element : result.elements()) {
      element = static_cast<T>(deviation * distribution_(engine_));
    }
    return result;
  }

  /// true with probability one half.
  template <int Rank>
  Tensor<bool, Rank> coins(const Extents<Rank>& shape) {
    Tensor<bool, Rank> result(shape);
    for (bool& element : result.elements()) element = (engine_() >> 63U) != 0;
    return result;
  }

 private:
  std::mt19937_64 engine_{20170612};
  std::normal_distribution<double> distribution_;
};

}  // namespace qkv::bench
