#include "model/pooling.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace qkv {
namespace {

/// What each token of a sample counts: Σ = 1.
std::vector<double> shares(const PoolingOptions& options,
                           const std::optional<Tensor<bool, 2>>& keep, Index sample, Index tokens) {
  std::vector<double> result(static_cast<std::size_t>(tokens), 0.0);
  if (options.pooling == Pooling::First) {
    if (tokens > 0) result[0] = 1;
    return result;
  }
  double count = 0;
  for (Index t = 0; t < tokens; ++t) {
    if (keep && !(*keep)(sample, t)) continue;
    result[static_cast<std::size_t>(t)] = 1;
    ++count;
  }
  for (double& share : result) share = count > 0 ? share / count : 0;
  return result;
}

}  // namespace

template <class T>
PooledTokens<T> pool(const PoolingOptions& options, const Tensor<T, 3>& tokens,
                     const std::optional<Tensor<bool, 2>>& keep) {
  const auto [batch, count, width] = tokens.shape();
  PooledTokens<T> result{Tensor<T, 2>({batch, width}), Tensor<T, 1>({batch})};
  std::vector<double> sums(static_cast<std::size_t>(width));
  for (Index b = 0; b < batch; ++b) {
    std::fill(sums.begin(), sums.end(), 0.0);
    const std::vector<double> share = shares(options, keep, b, count);
    for (Index t = 0; t < count; ++t) {
      const double factor = share[static_cast<std::size_t>(t)];
      if (factor == 0) continue;  // padding may hold anything
      for (Index d = 0; d < width; ++d) {
        sums[static_cast<std::size_t>(d)] += factor * static_cast<double>(tokens(b, t, d));
      }
    }
    double squares = 0;
    for (const double sum : sums) squares += sum * sum;
    const double length = std::sqrt(squares);
    result.lengths(b) = static_cast<T>(length);
    const double divisor = options.normalize && length > 0 ? length : 1;
    for (Index d = 0; d < width; ++d) {
      result.vectors(b, d) = static_cast<T>(sums[static_cast<std::size_t>(d)] / divisor);
    }
  }
  return result;
}

// Of y = x/|x|: dx = (dy − y·(y·dy))/|x|.
template <class T>
Tensor<T, 3> pool_backward(const PoolingOptions& options,
                           const std::optional<Tensor<bool, 2>>& keep,
                           const PooledTokens<T>& pooled, const Tensor<T, 2>& gradient,
                           Index tokens) {
  const auto [batch, width] = gradient.shape();
  Tensor<T, 3> result({batch, tokens, width});
  for (Index b = 0; b < batch; ++b) {
    const bool unit = options.normalize && pooled.lengths(b) > 0;
    double along = 0;
    for (Index d = 0; unit && d < width; ++d) {
      along += static_cast<double>(pooled.vectors(b, d)) * static_cast<double>(gradient(b, d));
    }
    const double divisor = unit ? static_cast<double>(pooled.lengths(b)) : 1;
    const std::vector<double> share = shares(options, keep, b, tokens);
    for (Index t = 0; t < tokens; ++t) {
      for (Index d = 0; d < width; ++d) {
        const double across =
            static_cast<double>(gradient(b, d)) - along * static_cast<double>(pooled.vectors(b, d));
        result(b, t, d) = static_cast<T>(share[static_cast<std::size_t>(t)] * across / divisor);
      }
    }
  }
  return result;
}

#define QKV_INSTANTIATE_POOLING(T)                                           \
  template PooledTokens<T> pool(const PoolingOptions&, const Tensor<T, 3>&,  \
                                const std::optional<Tensor<bool, 2>>&);      \
  template Tensor<T, 3> pool_backward(const PoolingOptions&,                 \
                                      const std::optional<Tensor<bool, 2>>&, \
                                      const PooledTokens<T>&, const Tensor<T, 2>&, Index);

QKV_INSTANTIATE_POOLING(double)
QKV_INSTANTIATE_POOLING(float)

#undef QKV_INSTANTIATE_POOLING

}  // namespace qkv
