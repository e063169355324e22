#include "model/changed_attention.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "model/changed_scores.h"
#include "model/heads.h"
#include "model/matching.h"
#include "module/module_sizes.h"
#include "module/projection.h"

namespace qkv {
namespace {

template <class T>
HeadRows<const T> rows_of(const Tensor<T, 4>& heads, Index sample, Index head) {
  return {&heads(sample, head, 0, 0), heads.shape(2), heads.shape(3)};
}

template <class T>
HeadRows<T> rows_of(Tensor<T, 4>& heads, Index sample, Index head) {
  return {&heads(sample, head, 0, 0), heads.shape(2), heads.shape(3)};
}

/// Which kv head a query head reads.
Index kv_head_of(const ChangedAttention& options, const ModuleSizes& sizes, Index head) {
  if (options.kv_heads_tiled) return head % sizes.kv_heads;
  return head / (sizes.heads / sizes.kv_heads);
}

template <class T>
MatchInputs<T> match_inputs(const ChangedAttention& options, const Tensor<T, 4>& query,
                            const Tensor<T, 4>& key,
                            const std::optional<Tensor<T, 2>>& matching_weight, const HeadIndex& at,
                            Index kv_head) {
  return {.matching = options.matching,
          .scale = options.scale,
          .query = rows_of(query, at.sample, at.head),
          .key = rows_of(key, at.sample, kv_head),
          .weight = matching_weight ? &(*matching_weight)(at.head, 0) : nullptr};
}

/// [B,H,T,D] → [B,T,H·D], as the options have it.
template <class T>
Tensor<T, 3> merged(const ChangedAttention& options, const Tensor<T, 4>& context) {
  if (!options.merged_by_view) return merge_heads(context.view());
  const auto [batch, heads, tokens, width] = context.shape();
  return contiguous_copy(view_as<3>(context.view(), Extents<3>{batch, tokens, heads * width}));
}

/// The derivative of merged: [B,T,H·D] → [B,H,T,D].
template <class T>
Tensor<T, 4> unmerged(const ChangedAttention& options, const Tensor<T, 3>& gradient, Index heads) {
  if (!options.merged_by_view) return contiguous_copy(split_heads(gradient.view(), heads));
  const auto [batch, tokens, width] = gradient.shape();
  return contiguous_copy(
      view_as<4>(gradient.view(), Extents<4>{batch, heads, tokens, width / heads}));
}

/// context [T,D] = weights [T,S]·value.
template <class T>
void aggregate(const T* weights, const HeadRows<const T>& value, const HeadRows<T>& context) {
  for (Index t = 0; t < context.rows; ++t) {
    T* row = context.row(t);
    std::fill_n(row, context.width, T{0});
    for (Index s = 0; s < value.rows; ++s) {
      const T weight = weights[t * value.rows + s];
      if (weight == T{0}) continue;
      const T* v = value.row(s);
#pragma omp simd
      for (Index d = 0; d < context.width; ++d) row[d] += weight * v[d];
    }
  }
}

/// dp = dc·vᵀ, and dv += pᵀ·dc.
template <class T>
void aggregate_backward(const T* weights, const HeadRows<const T>& value,
                        const HeadRows<const T>& context_gradient, T* weight_gradients,
                        const HeadRows<T>& value_gradient) {
  for (Index t = 0; t < context_gradient.rows; ++t) {
    const T* dc = context_gradient.row(t);
    for (Index s = 0; s < value.rows; ++s) {
      const T* v = value.row(s);
      T* dv = value_gradient.row(s);
      const T weight = weights[t * value.rows + s];
      T sum = 0;
#pragma omp simd reduction(+ : sum)
      for (Index d = 0; d < value.width; ++d) {
        sum += dc[d] * v[d];
        dv[d] += weight * dc[d];
      }
      weight_gradients[t * value.rows + s] = sum;
    }
  }
}

template <class T>
std::optional<Tensor<T, 1>> bias_gradient_where(bool present, const Tensor<T, 3>& gradient) {
  if (!present) return std::nullopt;
  return bias_gradient<T>(gradient.view());
}

}  // namespace

template <class T>
BlockAttentionResult<T> attend_changed(const ChangedAttention& options,
                                       const BlockAttentionParameters<T>& parameters,
                                       const Tensor<T, 3>& input,
                                       const std::optional<Tensor<bool, 2>>& keep) {
  const ModuleSizes sizes = checked_sizes(options.module);
  const MultiHeadAttentionParameters<T>& p = parameters.projections;
  const Index batch = input.shape(0);
  const Index tokens = input.shape(1);
  const ChangedMask mask(options, {batch, sizes.heads, tokens, tokens}, keep);

  const HeadPositions positions{.rotary = options.module.rotary};
  BlockAttentionResult<T> result;
  MultiHeadAttentionResult<T>& m = result.module;
  m.query_projection = projected(input, p.query_weight, p.query_bias);
  m.key_projection = projected(input, p.key_weight, p.key_bias);
  m.value_projection = projected(input, p.value_weight, p.value_bias);
  m.query_heads = enter_scores(m.query_projection, sizes.heads, positions);
  m.key_heads = enter_scores(m.key_projection, sizes.kv_heads, positions);
  const Tensor<T, 4> value = enter_scores(m.value_projection, sizes.kv_heads, {});
  m.context = Tensor<T, 4>::uninitialized({batch, sizes.heads, tokens, sizes.value_head_width});
  auto weights = Tensor<T, 4>::uninitialized({batch, sizes.heads, tokens, tokens});
  if (options.masked == MaskedWhen::AfterSoftmax) {
    result.normalised = Tensor<T, 4>::uninitialized(weights.shape());
  }

#pragma omp parallel for collapse(2) schedule(static)
  for (Index b = 0; b < batch; ++b) {
    for (Index h = 0; h < sizes.heads; ++h) {
      const HeadIndex at{b, h};
      const Index kv = kv_head_of(options, sizes, h);
      T* head_weights = &weights(b, h, 0, 0);
      match(match_inputs(options, m.query_heads, m.key_heads, parameters.matching, at, kv),
            head_weights);
      weigh(options, mask, at, head_weights,
            result.normalised ? &(*result.normalised)(b, h, 0, 0) : nullptr);
      aggregate(head_weights, rows_of(value, b, kv), rows_of(m.context, b, h));
    }
  }
  m.output = projected(merged(options, m.context), p.output_weight, p.output_bias);
  m.weights = std::move(weights);
  return result;
}

template <class T>
BlockAttentionGradients<T> attend_changed_backward(const ChangedAttention& options,
                                                   const BlockAttentionParameters<T>& parameters,
                                                   const Tensor<T, 3>& input,
                                                   const std::optional<Tensor<bool, 2>>& keep,
                                                   const BlockAttentionResult<T>& result,
                                                   const Tensor<T, 3>& output_gradient) {
  const ModuleSizes sizes = checked_sizes(options.module);
  const MultiHeadAttentionParameters<T>& p = parameters.projections;
  const MultiHeadAttentionResult<T>& m = result.module;
  const Index batch = input.shape(0);
  const Index tokens = input.shape(1);
  const ChangedMask mask(options, {batch, sizes.heads, tokens, tokens}, keep);

  BlockAttentionGradients<T> gradients;
  MultiHeadAttentionParameters<T>& dp = gradients.parameters.projections;
  dp.output_weight = weight_gradient<T>(output_gradient.view(), merged(options, m.context).view());
  dp.output_bias = bias_gradient_where(p.output_bias.has_value(), output_gradient);
  Tensor<T, 3> merged_gradient({batch, tokens, sizes.merged_width});
  add_input_gradient<T>(output_gradient.view(), p.output_weight, merged_gradient);
  const Tensor<T, 4> context_gradient = unmerged(options, merged_gradient, sizes.heads);

  const Tensor<T, 4> value = enter_scores(m.value_projection, sizes.kv_heads, {});
  Tensor<T, 4> query_gradient(m.query_heads.shape());
  Tensor<T, 4> key_gradient(m.key_heads.shape());
  Tensor<T, 4> value_gradient(value.shape());
  auto scores = Tensor<T, 4>::uninitialized({batch, sizes.heads, tokens, tokens});
  // One a sample, added up in their order.
  Tensor<T, 3> matching({batch, sizes.heads, sizes.head_width});
  const Tensor<T, 4>& normalised = result.normalised ? *result.normalised : *m.weights;

  // Heads that share keys and values add to the same rows: one after the other.
#pragma omp parallel for schedule(static)
  for (Index b = 0; b < batch; ++b) {
    for (Index h = 0; h < sizes.heads; ++h) {
      const HeadIndex at{b, h};
      const Index kv = kv_head_of(options, sizes, h);
      T* head_scores = &scores(b, h, 0, 0);
      aggregate_backward(&(*m.weights)(b, h, 0, 0), rows_of(value, b, kv),
                         rows_of(context_gradient, b, h), head_scores,
                         rows_of(value_gradient, b, kv));
      weigh_backward(options, mask, at, &normalised(b, h, 0, 0), head_scores);
      match_backward(
          match_inputs(options, m.query_heads, m.key_heads, parameters.matching, at, kv),
          head_scores,
          {rows_of(query_gradient, b, h), rows_of(key_gradient, b, kv), &matching(b, h, 0)});
    }
  }
  if (parameters.matching) {
    Tensor<T, 2>& sum = gradients.parameters.matching.emplace(parameters.matching->shape());
    for (Index b = 0; b < batch; ++b) {
      std::transform(sum.data(), sum.data() + sum.elements().size(), &matching(b, 0, 0), sum.data(),
                     std::plus<T>());
    }
  }

  const HeadPositions positions{.rotary = options.module.rotary};
  gradients.input = Tensor<T, 3>(input.shape());
  const auto through = [&](const Tensor<T, 3>& gradient, const Tensor<T, 2>& weight, bool biased,
                           Tensor<T, 2>& weight_target, std::optional<Tensor<T, 1>>& bias_target) {
    add_input_gradient<T>(gradient.view(), weight, gradients.input);
    weight_target = weight_gradient<T>(gradient.view(), input.view());
    bias_target = bias_gradient_where(biased, gradient);
  };
  through(leave_scores(std::move(query_gradient), positions), p.query_weight,
          p.query_bias.has_value(), dp.query_weight, dp.query_bias);
  through(leave_scores(std::move(key_gradient), positions), p.key_weight, p.key_bias.has_value(),
          dp.key_weight, dp.key_bias);
  through(leave_scores(std::move(value_gradient), {}), p.value_weight, p.value_bias.has_value(),
          dp.value_weight, dp.value_bias);
  return gradients;
}

#define QKV_INSTANTIATE_CHANGED_ATTENTION(T)                                            \
  template BlockAttentionResult<T> attend_changed(                                      \
      const ChangedAttention&, const BlockAttentionParameters<T>&, const Tensor<T, 3>&, \
      const std::optional<Tensor<bool, 2>>&);                                           \
  template BlockAttentionGradients<T> attend_changed_backward(                          \
      const ChangedAttention&, const BlockAttentionParameters<T>&, const Tensor<T, 3>&, \
      const std::optional<Tensor<bool, 2>>&, const BlockAttentionResult<T>&, const Tensor<T, 3>&);

QKV_INSTANTIATE_CHANGED_ATTENTION(double)
QKV_INSTANTIATE_CHANGED_ATTENTION(float)

#undef QKV_INSTANTIATE_CHANGED_ATTENTION

}  // namespace qkv
