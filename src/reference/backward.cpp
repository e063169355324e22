// The chain rule through the two steps, pass by pass in the reverse order of the forward:
//
//   aggregate  context = p·v           dv = pᵀ·dcontext        dp = dcontext·vᵀ (+ dweights)
//   softmax    p = exp(s − lse)        ds = p·(dp − Σ_j p·dp + dlse)
//   match      s = f(q·kᵀ) + bias      dq = f'·ds·k            dk = (f'·ds)ᵀ·q      dbias = ds
//
// where f is scale and softcap; the sink takes weight p_sink = exp(sink − lse) and has no value, so dp_sink = 0.
#include <cmath>

#include "base/broadcast.h"
#include "qkv/reference.h"
#include "reference/head.h"

namespace qkv::reference {
namespace {

constexpr std::string_view kOperation = "reference::backward";

template <class T>
struct Call {
  const AttentionInputs<T>& inputs;
  const AttentionPlan& plan;
  const AttentionOutputGradients<double>& output_gradients;
};

/// What the backward pass keeps of one head.
struct HeadGradients {
  explicit HeadGradients(const AttentionShape& shape)
      : score({shape.queries, shape.keys}),
        context({shape.queries, shape.value_width}),
        sink({shape.queries}) {}

  Tensor<double, 2> score;    // [T,S] ds
  Tensor<double, 2> context;  // [T,Dv] dcontext
  Tensor<double, 1> sink;     // [T]
};

/// Back through the softmax of query t: row t of ds, and the sink's share.
template <class T>
void softmax_backward(const Call<T>& call, const Head& head, const HeadScores& scores, Index t,
                      HeadGradients& gradients) {
  const Index keys = call.plan.shape.keys;
  const auto& upstream = call.output_gradients;
  for (Index d = 0; d < call.plan.shape.value_width; ++d) {
    gradients.context(t, d) = upstream.context(head.b, head.h, t, d);
  }
  bool sees_a_key = false;
  double mean = 0;  // Σ_j p·dp
  for (Index s = 0; s < keys; ++s) {
    if (!scores.visible(t, s)) continue;
    sees_a_key = true;
    double dp = dot(gradients.context, t, head.value, s);
    if (upstream.weights) dp += (*upstream.weights)(head.b, head.h, t, s);
    gradients.score(t, s) = dp;
    mean += scores.weights(t, s) * dp;
  }
  // A row that sees nothing still has the sink as its log-sum-exp.
  const double dlse = upstream.log_sum_exp ? (*upstream.log_sum_exp)(head.b, head.h, t) : 0.0;
  gradients.sink(t) = dlse;
  if (!sees_a_key) return;

  for (Index s = 0; s < keys; ++s) {
    if (!scores.visible(t, s)) continue;
    gradients.score(t, s) = scores.weights(t, s) * (gradients.score(t, s) - mean + dlse);
  }
  if (call.inputs.sink) {
    const double sink = static_cast<double>((*call.inputs.sink)(head.h));
    gradients.sink(t) = std::exp(sink - scores.log_sum_exp(t)) * (dlse - mean);
  }
}

/// dq[t,:] = Σ_s f'·ds[t,s]·k[s,:]
template <class T>
void query_backward(const Call<T>& call, const Head& head, const HeadScores& scores, Index t,
                    const HeadGradients& gradients, const TensorView<double, 4>& query_gradient) {
  const Index width = call.plan.shape.key_width;
  for (Index d = 0; d < width; ++d) query_gradient(head.b, head.h, t, d) = 0;
  for (Index s = 0; s < call.plan.shape.keys; ++s) {
    if (!scores.visible(t, s)) continue;
    const double slope = score_slope(call.inputs, call.plan, head, t, s) * gradients.score(t, s);
    for (Index d = 0; d < width; ++d) {
      query_gradient(head.b, head.h, t, d) += slope * head.key(s, d);
    }
  }
}

/// dk[s,:] += Σ_t f'·ds[t,s]·q[t,:] and dv[s,:] += Σ_t p[t,s]·dcontext[t,:]
template <class T>
void key_value_backward(const Call<T>& call, const Head& head, const HeadScores& scores, Index s,
                        const HeadGradients& gradients,
                        const AttentionInputGradients<double>& results) {
  const Index kv_head = head.h / call.plan.shape.group();
  for (Index t = 0; t < call.plan.shape.queries; ++t) {
    if (!scores.visible(t, s)) continue;
    const double slope = score_slope(call.inputs, call.plan, head, t, s) * gradients.score(t, s);
    for (Index d = 0; d < call.plan.shape.key_width; ++d) {
      results.key(head.b, kv_head, s, d) += slope * head.query(t, d);
    }
    for (Index d = 0; d < call.plan.shape.value_width; ++d) {
      results.value(head.b, kv_head, s, d) += scores.weights(t, s) * gradients.context(t, d);
    }
  }
}

/// dbias += ds, summed over the axes that the bias broadcasts along; dsink[h] += Σ_t.
template <class T>
void bias_and_sink_backward(const Call<T>& call, const Head& head, const HeadScores& scores,
                            const HeadGradients& gradients,
                            const AttentionInputGradients<double>& results) {
  const AttentionShape& shape = call.plan.shape;
  if (results.bias) {
    for (Index t = 0; t < shape.queries; ++t) {
      for (Index s = 0; s < shape.keys; ++s) {
        if (!scores.visible(t, s)) continue;
        broadcast_at(*results.bias, head.b, head.h, t, s) += gradients.score(t, s);
      }
    }
  }
  if (results.sink) {
    for (Index t = 0; t < shape.queries; ++t) (*results.sink)(head.h) += gradients.sink(t);
  }
}

template <int Rank>
void fill_zero(const TensorView<double, Rank>& view) {
  detail::for_each_offset(view.shape(), view.strides(),
                          [&](std::ptrdiff_t offset) { view.data()[offset] = 0; });
}

}  // namespace

template <class T>
void backward(const AttentionInputs<T>& inputs,
              const AttentionOutputGradients<double>& output_gradients,
              const AttentionInputGradients<double>& input_gradients) {
  const AttentionPlan plan = validate_inputs(kOperation, inputs);
  const AttentionShape& shape = plan.shape;
  validate_gradients(kOperation, inputs, shape, output_gradients, input_gradients);
  const bool has_work = shape.batch > 0 && shape.heads > 0 && shape.queries > 0;
  std::optional<Head> head;
  std::optional<HeadScores> scores;
  std::optional<HeadGradients> gradients;
  if (has_work) {
    head.emplace(shape);
    scores.emplace(shape);
    gradients.emplace(shape);
  }

  fill_zero(input_gradients.query);
  fill_zero(input_gradients.key);
  fill_zero(input_gradients.value);
  if (input_gradients.bias) fill_zero(*input_gradients.bias);
  if (input_gradients.sink) fill_zero(*input_gradients.sink);
  if (!has_work) return;

  const Call<T> call{inputs, plan, output_gradients};
  for (Index b = 0; b < shape.batch; ++b) {
    for (Index h = 0; h < shape.heads; ++h) {
      load_head(inputs, plan, b, h, *head);
#pragma omp parallel
      {
#pragma omp for schedule(dynamic)
        for (Index t = 0; t < shape.queries; ++t) {
          match(inputs, plan, *head, t, *scores);
          softmax_backward(call, *head, *scores, t, *gradients);
          query_backward(call, *head, *scores, t, *gradients, input_gradients.query);
        }
#pragma omp for schedule(dynamic)
        for (Index s = 0; s < shape.keys; ++s) {
          key_value_backward(call, *head, *scores, s, *gradients, input_gradients);
        }
      }
      bias_and_sink_backward(call, *head, *scores, *gradients, input_gradients);
    }
  }
}

#define QKV_INSTANTIATE(T)                                                                   \
  template void backward(const AttentionInputs<T>&, const AttentionOutputGradients<double>&, \
                         const AttentionInputGradients<double>&);
QKV_INSTANTIATE(double)
QKV_INSTANTIATE(float)
QKV_INSTANTIATE(Float16)
QKV_INSTANTIATE(BFloat16)
#undef QKV_INSTANTIATE

}  // namespace qkv::reference
