#include "tests/engine/straightforward.h"

#include <cmath>
#include <limits>
#include <vector>

#include "base/broadcast.h"
#include "base/validate.h"

namespace qkv::cases {
namespace {

/// The score of a visible pair.
template <class T>
T score_of(const AttentionInputs<T>& inputs, const AttentionPlan& plan, Index b, Index h, Index t,
           Index s) {
  const Index kv_head = h / plan.shape.group();
  T score = 0;
  for (Index d = 0; d < plan.shape.key_width; ++d) {
    score += inputs.query(b, h, t, d) * inputs.key(b, kv_head, s, d);
  }
  score *= static_cast<T>(plan.scale);
  if (inputs.softcap) {
    const auto cap = static_cast<T>(*inputs.softcap);
    score = cap * std::tanh(score / cap);
  }
  if (inputs.bias) score += broadcast_at(*inputs.bias, b, h, t, s);
  if (inputs.alibi) {
    const Index offset = plan.alibi_offsets[static_cast<std::size_t>(b)];
    score -= static_cast<T>(inputs.alibi->slopes[static_cast<std::size_t>(h)]) *
             static_cast<T>(std::abs(t + offset - s));
  }
  return score;
}

}  // namespace

template <class T>
Outputs straightforward_forward(const AttentionInputs<T>& inputs) {
  constexpr T kHidden = -std::numeric_limits<T>::infinity();
  const AttentionPlan plan = validate_inputs("straightforward", inputs);
  const AttentionShape& shape = plan.shape;
  Outputs result{Tensor<double, 4>({shape.batch, shape.heads, shape.queries, shape.value_width}),
                 Tensor<double, 4>({shape.batch, shape.heads, shape.queries, shape.keys}),
                 Tensor<double, 3>({shape.batch, shape.heads, shape.queries})};
  std::vector<T> scores(static_cast<std::size_t>(shape.keys));
  for (Index b = 0; b < shape.batch; ++b) {
    for (Index h = 0; h < shape.heads; ++h) {
      for (Index t = 0; t < shape.queries; ++t) {
        T largest = inputs.sink ? (*inputs.sink)(h) : kHidden;
        for (Index s = 0; s < shape.keys; ++s) {
          T& score = scores[static_cast<std::size_t>(s)];
          score = plan.mask.visible(b, h, t, s) ? score_of(inputs, plan, b, h, t, s) : kHidden;
          largest = std::max(largest, score);
        }
        result.log_sum_exp(b, h, t) = static_cast<double>(largest);
        if (largest == kHidden) continue;
        T sum = inputs.sink ? std::exp((*inputs.sink)(h) - largest) : T{0};
        for (T& score : scores) {
          score = std::exp(score - largest);
          sum += score;
        }
        for (Index d = 0; d < shape.value_width; ++d) {
          T context = 0;
          for (Index s = 0; s < shape.keys; ++s) {
            context += scores[static_cast<std::size_t>(s)] / sum *
                       inputs.value(b, h / shape.group(), s, d);
          }
          result.context(b, h, t, d) = static_cast<double>(context);
        }
        for (Index s = 0; s < shape.keys; ++s) {
          result.weights(b, h, t, s) =
              static_cast<double>(scores[static_cast<std::size_t>(s)] / sum);
        }
        result.log_sum_exp(b, h, t) = static_cast<double>(largest + std::log(sum));
      }
    }
  }
  return result;
}

template Outputs straightforward_forward(const AttentionInputs<double>&);
template Outputs straightforward_forward(const AttentionInputs<float>&);

}  // namespace qkv::cases
