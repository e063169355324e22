#include "model/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace qkv {

template <class T>
CrossEntropy<T> cross_entropy(const Tensor<T, 3>& logits, const Tensor<Index, 2>& targets) {
  CrossEntropy<T> result;
  const Index rows = logits.shape(0) * logits.shape(1);
  const Index vocabulary = logits.shape(2);
  result.gradient = Tensor<T, 3>(logits.shape());
  result.targets =
      static_cast<Index>(std::count_if(targets.elements().begin(), targets.elements().end(),
                                       [](Index target) { return target != kIgnoredTarget; }));
  if (result.targets == 0) return result;
  const double share = 1.0 / static_cast<double>(result.targets);
  // Summed after the rows, in their order, so that the threads do not show.
  std::vector<double> losses(static_cast<std::size_t>(rows), 0.0);
  std::vector<std::uint8_t> hits(static_cast<std::size_t>(rows), 0);
#pragma omp parallel for schedule(static)
  for (Index r = 0; r < rows; ++r) {
    const Index target = targets.data()[r];
    if (target == kIgnoredTarget) continue;
    const T* row = logits.data() + r * vocabulary;
    T* gradient = result.gradient.data() + r * vocabulary;
    const T* largest = std::max_element(row, row + vocabulary);
    double sum = 0;
    for (Index v = 0; v < vocabulary; ++v) {
      gradient[v] = std::exp(row[v] - *largest);
      sum += static_cast<double>(gradient[v]);
    }
    const T factor = static_cast<T>(share / sum);
    for (Index v = 0; v < vocabulary; ++v) gradient[v] *= factor;
    gradient[target] -= static_cast<T>(share);
    const auto at = static_cast<std::size_t>(r);
    losses[at] = std::log(sum) + static_cast<double>(*largest) - static_cast<double>(row[target]);
    hits[at] = largest == row + target ? 1 : 0;
  }
  for (const double loss : losses) result.loss += loss;
  for (const std::uint8_t hit : hits) result.hits += hit;
  result.loss *= share;
  return result;
}

template CrossEntropy<double> cross_entropy(const Tensor<double, 3>&, const Tensor<Index, 2>&);
template CrossEntropy<float> cross_entropy(const Tensor<float, 3>&, const Tensor<Index, 2>&);

}  // namespace qkv
