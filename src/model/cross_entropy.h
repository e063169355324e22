// Cross-entropy of logits against targets.
#pragma once

#include "qkv/tensor.h"

namespace qkv {

/// No loss is taken where the target is this.
inline constexpr Index kIgnoredTarget = -1;

template <class T>
struct CrossEntropy {
  double loss = 0;  ///< mean over the targets, in nats; 0 without targets
  Index targets = 0;
  Index hits = 0;         ///< targets whose logit is the largest, the first of equal ones
  Tensor<T, 3> gradient;  ///< [B,T,V]: (softmax − one at the target) / targets, 0 where ignored
};

/// logits [B,T,V], targets [B,T].
template <class T>
CrossEntropy<T> cross_entropy(const Tensor<T, 3>& logits, const Tensor<Index, 2>& targets);

}  // namespace qkv
