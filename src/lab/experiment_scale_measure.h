// What the scale of the logits does to their variance, to the softmax and to its gradient: the measurements of `scale`.
#pragma once

#include <cstdint>
#include <optional>

#include "qkv/attention.h"
#include "qkv/engine.h"

namespace qkv::lab {

/// How the components of queries and keys are drawn: normal, two components of a vector correlated with each other. The lesson
/// assumes mean 0, deviation 1 and no correlation.
struct Components {
  double mean = 0;
  double deviation = 1;
  double correlation = 0;  ///< 0 to 1, of any two components of a vector

  /// Var(q·k) of independent q and k of `width` components: tr(Σ²) + 2·μᵀΣμ.
  double dot_variance(Index width) const;
};

struct LogitRequest {
  Components components;
  Index width = 1;  ///< Dk
  Index pairs = 1;  ///< independent ones of a query and a key
  std::uint64_t seed = 0;
};

struct LogitVariance {
  double unscaled = 0;  ///< of q·k
  double scaled = 0;    ///< of q·k/√Dk, the library's default
};

/// Each pair is an attention with one key, whose log-sum-exp is the logit.
LogitVariance logit_variance(const LogitRequest& request, const engine::Options& options);

inline constexpr double kNearlyZero = 1e-6;

/// Means over the rows of an attention of standard normal queries and keys.
struct SoftmaxState {
  double entropy = 0;  ///< of the weights, as a part of ln S: 1 is uniform, 0 one key
  double largest_weight = 0;
  double gradient_norm = 0;    ///< of the loss with respect to a row's logits
  double gradient_median = 0;  ///< of the magnitudes of its entries, over all rows
  double nearly_zero = 0;      ///< part of the entries below kNearlyZero
  Tensor<double, 4> weights;   ///< [1,1,T,S]
};

struct SoftmaxRequest {
  Index width = 1;              ///< Dk
  Index tokens = 1;             ///< T = S
  std::optional<double> scale;  ///< 1/√Dk where absent
  std::uint64_t seed = 0;       ///< the same seed draws the same queries and keys
};

/// The loss is context·g with values and g standard normal, g divided by √Dv: its derivative with respect to a weight is about
/// standard normal whatever the width. The gradient of the logits is that of a bias of zeros.
SoftmaxState softmax_state(const SoftmaxRequest& request, const engine::Options& options);

}  // namespace qkv::lab
