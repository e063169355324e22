#include "qkv/multi_head_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "base/validate.h"
#include "module/head_copy.h"
#include "module/module_sizes.h"
#include "module/projection.h"
#include "qkv/engine.h"
#include "qkv/rms_norm.h"

namespace qkv {
namespace {

constexpr std::string_view kForward = "MultiHeadAttention::forward";
constexpr std::string_view kBackward = "MultiHeadAttention::backward";

/// The three token inputs with absent ones filled in, checked.
template <class T>
struct Sources {
  TensorView<const T, 3> query;  // [B,T,model_width]
  TensorView<const T, 3> key;    // [B,S,key_width]
  TensorView<const T, 3> value;  // [B,S,value_width]

  Index batch() const { return query.shape(0); }
  Index queries() const { return query.shape(1); }
  Index keys() const { return key.shape(1); }
};

template <class T>
void check_positions(std::string_view operation, std::string_view name,
                     const std::optional<TensorView<const Index, 2>>& positions,
                     const MultiHeadAttentionOptions& options,
                     const TensorView<const T, 3>& tokens) {
  if (!positions) return;
  if (!options.rotary) {
    throw std::invalid_argument(
        fmt::format("{}: {}: expected none without rotary positions, got shape {}", operation, name,
                    to_string(positions->shape())));
  }
  const Index samples = positions->shape(0) == 1 ? 1 : tokens.shape(0);
  expect_shape(operation, {name, footprint(*positions)}, Extents<2>{samples, tokens.shape(1)});
}

template <class T>
Sources<T> checked_sources(std::string_view operation, const MultiHeadAttentionOptions& options,
                           const ModuleSizes& sizes, const MultiHeadAttentionInputs<T>& inputs) {
  Sources<T> sources;
  sources.query = inputs.query;
  sources.key = inputs.key.value_or(sources.query);
  sources.value = inputs.value.value_or(sources.key);
  const Index batch = sources.batch();
  const auto check = [&](std::string_view name, const TensorView<const T, 3>& view, Index tokens,
                         Index width) {
    expect_shape(operation, {name, footprint(view)}, Extents<3>{batch, tokens, width});
  };
  check("query", sources.query, sources.queries(), sizes.model_width);
  check(inputs.key ? "key" : "key (the query input)", sources.key, sources.keys(),
        sizes.key_input_width);
  check(inputs.value ? "value" : "value (the key input)", sources.value, sources.keys(),
        sizes.value_input_width);
  check_positions(operation, "query_positions", inputs.query_positions, options, sources.query);
  check_positions(operation, "key_positions", inputs.key_positions, options, sources.key);
  return sources;
}

/// Positions as given, or 0, 1, 2, ….
class Positions {
 public:
  Positions(const std::optional<TensorView<const Index, 2>>& given, Index tokens) : given_(given) {
    if (given_) return;
    counted_ = Tensor<Index, 2>({1, tokens});
    std::iota(counted_.elements().begin(), counted_.elements().end(), Index{0});
  }

  TensorView<const Index, 2> view() const { return given_ ? *given_ : counted_.view(); }

 private:
  std::optional<TensorView<const Index, 2>> given_;
  Tensor<Index, 2> counted_;
};

template <class T>
Positions query_positions(const MultiHeadAttentionInputs<T>& inputs, const Sources<T>& sources) {
  return {inputs.query_positions, sources.queries()};
}

template <class T>
Positions key_positions(const MultiHeadAttentionInputs<T>& inputs, const Sources<T>& sources) {
  const bool shares = !inputs.key && !inputs.key_positions;
  return {shares ? inputs.query_positions : inputs.key_positions, sources.keys()};
}

/// Heads as they enter the scores: [B,T,H·D] split, normed where there is a norm, turned where there are
/// positions.
template <class T>
void enter_scores(const Tensor<T, 3>& projection, const std::optional<Tensor<T, 1>>& norm,
                  const MultiHeadAttentionOptions& options, const Positions& positions,
                  Tensor<T, 4>& result) {
  const TensorView<const T, 4> split = split_heads(projection.view(), result.shape(1));
  copy_heads(split, result.view());
  if (norm) rms_norm<T>(split, norm->view(), options.qk_norm->epsilon, result.view());
  if (options.rotary) {
    apply_rotary<T>(result.view(), positions.view(), *options.rotary, result.view());
  }
}

/// [B,H,T,D] → [B,T,H·D].
template <class T>
Tensor<T, 3> merged_heads(const Tensor<T, 4>& heads) {
  const auto [batch, count, tokens, width] = heads.shape();
  auto merged = Tensor<T, 3>::uninitialized({batch, tokens, count * width});
  copy_heads(heads.view(), split_heads(merged.view(), count));
  return merged;
}

/// The way back: from derivatives with respect to the heads in the scores ([B,T,H·D] memory) to those with
/// respect to the projection, in place; fills norm_gradient where there is a norm.
template <class T>
void leave_scores(Tensor<T, 3>& gradient, const Tensor<T, 3>& projection, Index heads,
                  const std::optional<Tensor<T, 1>>& norm, const MultiHeadAttentionOptions& options,
                  const Positions& positions, std::optional<Tensor<T, 1>>& norm_gradient) {
  const TensorView<T, 4> split = split_heads(gradient.view(), heads);
  if (options.rotary) {
    apply_rotary_backward<T>(split, positions.view(), *options.rotary, split);
  }
  if (norm) {
    Tensor<T, 3> before_norm(gradient.shape());
    rms_norm_backward<T>(
        split_heads(projection.view(), heads), norm->view(), options.qk_norm->epsilon, split,
        {.input = split_heads(before_norm.view(), heads), .weight = norm_gradient->view()});
    gradient = std::move(before_norm);
  }
}

template <class T>
AttentionInputs<T> core_inputs(const MultiHeadAttentionOptions& options, const ModuleSizes& sizes,
                               const MultiHeadAttentionInputs<T>& inputs,
                               const MultiHeadAttentionResult<T>& result) {
  return {.query = result.query_heads.view(),
          .key = result.key_heads.view(),
          .value = split_heads(result.value_projection.view(), sizes.kv_heads),
          .mask = inputs.mask,
          .scale = options.scale,
          .softcap = options.softcap,
          .bias = inputs.bias,
          .alibi = inputs.alibi,
          .sink = std::nullopt};
}

template <class T>
MultiHeadAttentionResult<T> empty_result(const ModuleSizes& sizes, const Sources<T>& sources,
                                         ReturnWeights return_weights) {
  const Index batch = sources.batch();
  const Index queries = sources.queries();
  const Index keys = sources.keys();
  MultiHeadAttentionResult<T> result{
      .output = Tensor<T, 3>::uninitialized({batch, queries, sizes.model_width}),
      .weights = std::nullopt,
      .log_sum_exp = Tensor<T, 3>::uninitialized({batch, sizes.heads, queries}),
      .query_projection = Tensor<T, 3>::uninitialized({batch, queries, sizes.query_rows}),
      .key_projection = Tensor<T, 3>::uninitialized({batch, keys, sizes.key_rows}),
      .value_projection = Tensor<T, 3>::uninitialized({batch, keys, sizes.value_rows}),
      .query_heads = Tensor<T, 4>::uninitialized({batch, sizes.heads, queries, sizes.head_width}),
      .key_heads = Tensor<T, 4>::uninitialized({batch, sizes.kv_heads, keys, sizes.head_width}),
      .context =
          Tensor<T, 4>::uninitialized({batch, sizes.heads, queries, sizes.value_head_width})};
  if (return_weights == ReturnWeights::Yes) {
    result.weights = Tensor<T, 4>::uninitialized({batch, sizes.heads, queries, keys});
  }
  return result;
}

/// What the backward call reads of a forward call's result must have that call's shapes.
template <class T>
void check_result(const ModuleSizes& sizes, const Sources<T>& sources,
                  const MultiHeadAttentionResult<T>& result) {
  const Index batch = sources.batch();
  const Index queries = sources.queries();
  const Index keys = sources.keys();
  const auto check = [](std::string_view name, const auto& tensor, const auto& expected) {
    expect_shape(kBackward, {name, footprint(tensor.view())}, expected);
  };
  check("result.log_sum_exp", result.log_sum_exp, Extents<3>{batch, sizes.heads, queries});
  check("result.query_projection", result.query_projection,
        Extents<3>{batch, queries, sizes.query_rows});
  check("result.key_projection", result.key_projection, Extents<3>{batch, keys, sizes.key_rows});
  check("result.value_projection", result.value_projection,
        Extents<3>{batch, keys, sizes.value_rows});
  check("result.query_heads", result.query_heads,
        Extents<4>{batch, sizes.heads, queries, sizes.head_width});
  check("result.key_heads", result.key_heads,
        Extents<4>{batch, sizes.kv_heads, keys, sizes.head_width});
  check("result.context", result.context,
        Extents<4>{batch, sizes.heads, queries, sizes.value_head_width});
}

/// The output gradient with zeros in the rows that see no key in any head, where there are such rows. Their context is 0
/// whatever the parameters and inputs, so a NaN that a loss puts there says nothing about the output weight.
template <class T>
std::optional<Tensor<T, 3>> without_blind_rows(const TensorView<const T, 3>& output_gradient,
                                               const Tensor<T, 3>& log_sum_exp) {
  std::optional<Tensor<T, 3>> result;
  const auto [batch, heads, queries] = log_sum_exp.shape();
  for (Index b = 0; b < batch; ++b) {
    for (Index t = 0; t < queries; ++t) {
      bool blind = true;
      for (Index h = 0; h < heads; ++h) {
        blind = blind && log_sum_exp(b, h, t) == -std::numeric_limits<T>::infinity();
      }
      if (!blind) continue;
      if (!result) result = contiguous_copy(output_gradient);
      std::fill_n(&(*result)(b, t, 0), result->shape(2), T{0});
    }
  }
  return result;
}

template <class T>
std::optional<Tensor<T, 1>> bias_gradient_where(bool present,
                                                const TensorView<const T, 3>& output_gradient) {
  if (!present) return std::nullopt;
  return bias_gradient(output_gradient);
}

}  // namespace

template <class T>
MultiHeadAttention<T>::MultiHeadAttention(const MultiHeadAttentionOptions& options,
                                          MultiHeadAttentionParameters<T> parameters)
    : options_(options), parameters_(std::move(parameters)) {
  check_parameters("MultiHeadAttention", options_, parameters_);
}

template <class T>
MultiHeadAttentionResult<T> MultiHeadAttention<T>::forward(
    const MultiHeadAttentionInputs<T>& inputs, ReturnWeights return_weights) const {
  check_parameters(kForward, options_, parameters_);  // the caller may have replaced one
  const ModuleSizes sizes = checked_sizes(options_);
  const Sources<T> sources = checked_sources(kForward, options_, sizes, inputs);
  MultiHeadAttentionResult<T> result = empty_result(sizes, sources, return_weights);
  validate_inputs(kForward, core_inputs(options_, sizes, inputs, result));

  const MultiHeadAttentionParameters<T>& p = parameters_;
  project(sources.query, p.query_weight, p.query_bias, result.query_projection);
  project(sources.key, p.key_weight, p.key_bias, result.key_projection);
  project(sources.value, p.value_weight, p.value_bias, result.value_projection);
  enter_scores(result.query_projection, p.query_norm, options_, query_positions(inputs, sources),
               result.query_heads);
  enter_scores(result.key_projection, p.key_norm, options_, key_positions(inputs, sources),
               result.key_heads);

  AttentionOutputs<T> outputs{.context = result.context.view(),
                              .weights = std::nullopt,
                              .log_sum_exp = result.log_sum_exp.view()};
  if (result.weights) outputs.weights = result.weights->view();
  engine::forward(core_inputs(options_, sizes, inputs, result), outputs);

  const Tensor<T, 3> merged = merged_heads(result.context);
  project(merged.view(), p.output_weight, p.output_bias, result.output);
  return result;
}

template <class T>
MultiHeadAttentionGradients<T> MultiHeadAttention<T>::backward(
    const MultiHeadAttentionInputs<T>& inputs, const MultiHeadAttentionResult<T>& result,
    const TensorView<const T, 3>& output_gradient,
    const std::optional<TensorView<const T, 4>>& weights_gradient) const {
  check_parameters(kBackward, options_, parameters_);
  const ModuleSizes sizes = checked_sizes(options_);
  const Sources<T> sources = checked_sources(kBackward, options_, sizes, inputs);
  check_result(sizes, sources, result);
  const Index batch = sources.batch();
  const Index queries = sources.queries();
  const Index keys = sources.keys();
  expect_shape(kBackward, {"output_gradient", footprint(output_gradient)},
               Extents<3>{batch, queries, sizes.model_width});
  if (weights_gradient) {
    expect_shape(kBackward, {"weights_gradient", footprint(*weights_gradient)},
                 Extents<4>{batch, sizes.heads, queries, keys});
  }
  const AttentionInputs<T> core = core_inputs(options_, sizes, inputs, result);
  validate_inputs(kBackward, core);

  const MultiHeadAttentionParameters<T>& p = parameters_;
  MultiHeadAttentionGradients<T> gradients;
  gradients.parameters = zero_parameters<T>(options_);
  MultiHeadAttentionParameters<T>& dp = gradients.parameters;

  // Output projection.
  Tensor<T, 3> context_gradient({batch, queries, sizes.merged_width});
  add_input_gradient(output_gradient, p.output_weight, context_gradient);
  const Tensor<T, 3> merged = merged_heads(result.context);
  const auto seeing = without_blind_rows(output_gradient, result.log_sum_exp);
  dp.output_weight =
      weight_gradient<T>(seeing ? std::as_const(*seeing).view() : output_gradient, merged.view());
  dp.output_bias = bias_gradient_where(p.output_bias.has_value(), output_gradient);

  // Attention. Gradients of heads are written as merged projections: no copy to merge them.
  auto query_gradient = Tensor<T, 3>::uninitialized({batch, queries, sizes.query_rows});
  auto key_gradient = Tensor<T, 3>::uninitialized({batch, keys, sizes.key_rows});
  auto value_gradient = Tensor<T, 3>::uninitialized({batch, keys, sizes.value_rows});
  AttentionInputGradients<T> core_gradients{
      .query = split_heads(query_gradient.view(), sizes.heads),
      .key = split_heads(key_gradient.view(), sizes.kv_heads),
      .value = split_heads(value_gradient.view(), sizes.kv_heads),
      .bias = std::nullopt,
      .sink = std::nullopt};
  if (inputs.bias) {
    gradients.bias.emplace(inputs.bias->shape());
    core_gradients.bias = gradients.bias->view();
  }
  engine::backward<T>(core, {result.context.view(), result.log_sum_exp.view()},
                      {.context = split_heads(context_gradient.view(), sizes.heads),
                       .weights = weights_gradient,
                       .log_sum_exp = std::nullopt},
                      core_gradients, {}, engine::Queries::WithGradient);

  // Rotary positions and norms.
  leave_scores(query_gradient, result.query_projection, sizes.heads, p.query_norm, options_,
               query_positions(inputs, sources), dp.query_norm);
  leave_scores(key_gradient, result.key_projection, sizes.kv_heads, p.key_norm, options_,
               key_positions(inputs, sources), dp.key_norm);

  // Input projections; an input that serves several of them collects their gradients.
  gradients.query = Tensor<T, 3>(sources.query.shape());
  if (inputs.key) gradients.key.emplace(sources.key.shape());
  if (inputs.value) gradients.value.emplace(sources.value.shape());
  Tensor<T, 3>& key_target = gradients.key ? *gradients.key : gradients.query;
  Tensor<T, 3>& value_target = gradients.value ? *gradients.value : key_target;
  add_input_gradient<T>(query_gradient.view(), p.query_weight, gradients.query);
  add_input_gradient<T>(key_gradient.view(), p.key_weight, key_target);
  add_input_gradient<T>(value_gradient.view(), p.value_weight, value_target);
  dp.query_weight = weight_gradient<T>(query_gradient.view(), sources.query);
  dp.key_weight = weight_gradient<T>(key_gradient.view(), sources.key);
  dp.value_weight = weight_gradient<T>(value_gradient.view(), sources.value);
  dp.query_bias = bias_gradient_where<T>(p.query_bias.has_value(), query_gradient.view());
  dp.key_bias = bias_gradient_where<T>(p.key_bias.has_value(), key_gradient.view());
  dp.value_bias = bias_gradient_where<T>(p.value_bias.has_value(), value_gradient.view());
  return gradients;
}

template class MultiHeadAttention<double>;
template class MultiHeadAttention<float>;

}  // namespace qkv
