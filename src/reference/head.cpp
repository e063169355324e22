#include "reference/head.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/broadcast.h"

namespace qkv::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class T>
void load_matrix(const TensorView<const T, 4>& source, Index b, Index h,
                 Tensor<double, 2>& target) {
  for (Index row = 0; row < target.shape(0); ++row) {
    for (Index d = 0; d < target.shape(1); ++d) {
      target(row, d) = static_cast<double>(source(b, h, row, d));
    }
  }
}

/// The bias of one pair; 0 where there is none. An axis of extent 1 serves every index.
template <class T>
double bias_of(const AttentionInputs<T>& inputs, const Head& head, Index t, Index s) {
  if (!inputs.bias) return 0;
  return static_cast<double>(broadcast_at(*inputs.bias, head.b, head.h, t, s));
}

/// −slope·|t + offset − s|; 0 without ALiBi.
template <class T>
double alibi_of(const AttentionInputs<T>& inputs, const AttentionPlan& plan, const Head& head,
                Index t, Index s) {
  if (!inputs.alibi) return 0;
  const Index offset = plan.alibi_offset(head.b);
  const double distance = std::fabs(static_cast<double>(t + offset - s));
  return -inputs.alibi->slopes[static_cast<std::size_t>(head.h)] * distance;
}

}  // namespace

double dot(const Tensor<double, 2>& a, Index a_row, const Tensor<double, 2>& b, Index b_row) {
  const Index width = a.shape(1);
  const double* x = a.data() + a_row * width;
  const double* y = b.data() + b_row * width;
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Index i = 0; i < width; ++i) sum += x[i] * y[i];
  return sum;
}

template <class T>
void load_head(const AttentionInputs<T>& inputs, const AttentionPlan& plan, Index b, Index h,
               Head& head) {
  head.b = b;
  head.h = h;
  const Index kv_head = h / plan.shape.group();
  load_matrix(inputs.query, b, h, head.query);
  load_matrix(inputs.key, b, kv_head, head.key);
  load_matrix(inputs.value, b, kv_head, head.value);
}

template <class T>
double score(const AttentionInputs<T>& inputs, const AttentionPlan& plan, const Head& head, Index t,
             Index s) {
  double score = plan.scale * dot(head.query, t, head.key, s);
  if (inputs.softcap) score = *inputs.softcap * std::tanh(score / *inputs.softcap);
  return score + bias_of(inputs, head, t, s) + alibi_of(inputs, plan, head, t, s);
}

template <class T>
void match(const AttentionInputs<T>& inputs, const AttentionPlan& plan, const Head& head, Index t,
           HeadScores& scores) {
  const Index keys = plan.shape.keys;
  for (Index s = 0; s < keys; ++s) {
    scores.weights(t, s) = 0;
    scores.visible(t, s) = false;
  }

  // Scores of the visible keys, and the largest: subtracting it keeps the exponentials in range.
  const KeyRange range = plan.mask.key_range(head.b, t);
  double largest = -kInfinity;
  bool sees_a_key = false;
  for (Index s = range.begin; s < range.end; ++s) {
    if (!plan.mask.visible(head.b, head.h, t, s)) continue;
    if (bias_of(inputs, head, t, s) == -kInfinity) continue;
    const double score = reference::score(inputs, plan, head, t, s);
    scores.weights(t, s) = score;
    scores.visible(t, s) = true;
    sees_a_key = true;
    largest = std::max(largest, score);
  }

  const double sink = inputs.sink ? static_cast<double>((*inputs.sink)(head.h)) : -kInfinity;
  if (!sees_a_key) {
    scores.log_sum_exp(t) = sink;
    return;
  }
  largest = std::max(largest, sink);

  // Softmax over the visible keys and the sink. A NaN score makes the sum, and so the whole row, NaN.
  double sum = inputs.sink ? std::exp(sink - largest) : 0.0;
  for (Index s = range.begin; s < range.end; ++s) {
    if (!scores.visible(t, s)) continue;
    scores.weights(t, s) = std::exp(scores.weights(t, s) - largest);
    sum += scores.weights(t, s);
  }
  for (Index s = range.begin; s < range.end; ++s) {
    if (scores.visible(t, s)) scores.weights(t, s) /= sum;
  }
  scores.log_sum_exp(t) = largest + std::log(sum);
}

template <class T>
double score_slope(const AttentionInputs<T>& inputs, const AttentionPlan& plan, const Head& head,
                   Index t, Index s) {
  if (!inputs.softcap) return plan.scale;
  // d/dx softcap·tanh(x / softcap) = 1 − tanh²(x / softcap)
  const double x = plan.scale * dot(head.query, t, head.key, s);
  const double tanh = std::tanh(x / *inputs.softcap);
  return plan.scale * (1 - tanh * tanh);
}

#define QKV_INSTANTIATE(T)                                                                         \
  template void load_head(const AttentionInputs<T>&, const AttentionPlan&, Index, Index, Head&);   \
  template double score(const AttentionInputs<T>&, const AttentionPlan&, const Head&, Index,       \
                        Index);                                                                    \
  template void match(const AttentionInputs<T>&, const AttentionPlan&, const Head&, Index,         \
                      HeadScores&);                                                                \
  template double score_slope(const AttentionInputs<T>&, const AttentionPlan&, const Head&, Index, \
                              Index);
QKV_INSTANTIATE(double)
QKV_INSTANTIATE(float)
QKV_INSTANTIATE(Float16)
QKV_INSTANTIATE(BFloat16)
#undef QKV_INSTANTIATE

}  // namespace qkv::reference
