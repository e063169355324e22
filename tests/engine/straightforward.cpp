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
    const Index offset = plan.alibi_offset(b);
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
        T sum = inputs.sink ? std::exp((*inputs.sink)(h)-largest) : T{0};
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

template <class T>
Gradients straightforward_backward(const AttentionInputs<T>& inputs,
                                   const AttentionOutputGradients<T>& upstream) {
  const AttentionPlan plan = validate_inputs("straightforward", inputs);
  const AttentionShape& shape = plan.shape;
  const Outputs forward = straightforward_forward(inputs);
  Tensor<T, 4> query(inputs.query.shape());
  Tensor<T, 4> key(inputs.key.shape());
  Tensor<T, 4> value(inputs.value.shape());
  std::optional<Tensor<T, 4>> bias;
  if (inputs.bias) bias.emplace(inputs.bias->shape());
  Tensor<T, 1> sink({shape.heads});
  std::vector<T> weight_gradients(static_cast<std::size_t>(shape.keys));
  for (Index b = 0; b < shape.batch; ++b) {
    for (Index h = 0; h < shape.heads; ++h) {
      const Index kv = h / shape.group();
      for (Index t = 0; t < shape.queries; ++t) {
        const T upstream_lse = upstream.log_sum_exp ? (*upstream.log_sum_exp)(b, h, t) : T{0};
        T delta = 0;
        for (Index s = 0; s < shape.keys; ++s) {
          if (!plan.mask.visible(b, h, t, s)) continue;
          T& dp = weight_gradients[static_cast<std::size_t>(s)];
          dp = upstream.weights ? (*upstream.weights)(b, h, t, s) : T{0};
          for (Index d = 0; d < shape.value_width; ++d) {
            dp += upstream.context(b, h, t, d) * inputs.value(b, kv, s, d);
          }
          delta += static_cast<T>(forward.weights(b, h, t, s)) * dp;
        }
        delta -= upstream_lse;
        if (inputs.sink) {
          const auto lse = static_cast<T>(forward.log_sum_exp(b, h, t));
          if (lse != -std::numeric_limits<T>::infinity()) {
            sink(h) -= std::exp((*inputs.sink)(h)-lse) * delta;
          }
        }
        for (Index s = 0; s < shape.keys; ++s) {
          if (!plan.mask.visible(b, h, t, s)) continue;
          if (bias && static_cast<double>(broadcast_at(*inputs.bias, b, h, t, s)) ==
                          -std::numeric_limits<double>::infinity()) {
            continue;
          }
          const auto p = static_cast<T>(forward.weights(b, h, t, s));
          T ds = p * (weight_gradients[static_cast<std::size_t>(s)] - delta);
          if (bias) broadcast_at(bias->view(), b, h, t, s) += ds;
          ds *= static_cast<T>(plan.scale);
          if (inputs.softcap) {
            T product = 0;
            for (Index d = 0; d < shape.key_width; ++d) {
              product += inputs.query(b, h, t, d) * inputs.key(b, kv, s, d);
            }
            const T tanh =
                std::tanh(product * static_cast<T>(plan.scale) / static_cast<T>(*inputs.softcap));
            ds *= 1 - tanh * tanh;
          }
          for (Index d = 0; d < shape.key_width; ++d) {
            query(b, h, t, d) += ds * inputs.key(b, kv, s, d);
            key(b, kv, s, d) += ds * inputs.query(b, h, t, d);
          }
          for (Index d = 0; d < shape.value_width; ++d) {
            value(b, kv, s, d) += p * upstream.context(b, h, t, d);
          }
        }
      }
    }
  }
  const auto widen = [](const auto& from, auto& to) {
    std::copy(from.elements().begin(), from.elements().end(), to.elements().begin());
  };
  Gradients result{Tensor<double, 4>(query.shape()), Tensor<double, 4>(key.shape()),
                   Tensor<double, 4>(value.shape()), std::nullopt, std::nullopt};
  widen(query, result.query);
  widen(key, result.key);
  widen(value, result.value);
  if (bias) widen(*bias, result.bias.emplace(bias->shape()));
  if (inputs.sink) widen(sink, result.sink.emplace(sink.shape()));
  return result;
}

template Gradients straightforward_backward(const AttentionInputs<double>&,
                                            const AttentionOutputGradients<double>&);
template Gradients straightforward_backward(const AttentionInputs<float>&,
                                            const AttentionOutputGradients<float>&);
template Outputs straightforward_forward(const AttentionInputs<double>&);
template Outputs straightforward_forward(const AttentionInputs<float>&);

}  // namespace qkv::cases
