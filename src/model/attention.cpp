#include "model/attention.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "model/changed_attention.h"
#include "model/elementwise.h"
#include "module/module_sizes.h"
#include "module/projection.h"
#include "qkv/engine.h"

namespace qkv {
namespace {

constexpr const char* kOperation = "attention";

[[noreturn]] void refuse(const std::string& argument, const std::string& expected, Index got) {
  throw std::invalid_argument(
      fmt::format("{}: {}: expected {}, got {}", kOperation, argument, expected, got));
}

void check_bug(AttentionBug bug, const BlockAttentionOptions& options, const ModuleSizes& sizes) {
  const std::string name(name_of(bug));
  switch (bug) {
    case AttentionBug::WindowOffByOne:
      if (!options.window) {
        throw std::invalid_argument(
            fmt::format("{}: {}: expected a window, got none", kOperation, name));
      }
      return;
    case AttentionBug::KvHeadsTiled:
      if (sizes.kv_heads == 1 || sizes.kv_heads == sizes.heads) {
        refuse(name, fmt::format("more than one and fewer than {} kv heads", sizes.heads),
               sizes.kv_heads);
      }
      return;
    default:
      return;
  }
}

bool has(const AttentionChange& change, AttentionBug bug) { return change.bug == bug; }

MultiHeadAttentionOptions engine_options(const BlockAttentionOptions& options) {
  MultiHeadAttentionOptions module = options.module;
  module.scale = score_scale(options);
  return module;
}

template <class T>
MultiHeadAttentionInputs<T> engine_inputs(const BlockAttentionOptions& options,
                                          const Tensor<T, 3>& input,
                                          const std::optional<Tensor<bool, 2>>& keep) {
  Mask mask = position_rules(options);
  if (keep && !has(options.change, AttentionBug::PaddingDropped)) {
    mask = mask & Mask::key_padding(keep->view(), Polarity::Keep);
  }
  return {.query = input.view(), .mask = mask};
}

ChangedAttention changed_options(const BlockAttentionOptions& options) {
  ChangedAttention changed{.module = options.module,
                           .rules = position_rules(options),
                           .scale = score_scale(options),
                           .matching = options.change.matching,
                           .fill = options.change.fill};
  if (!options.change.bug) return changed;
  switch (*options.change.bug) {
    case AttentionBug::MaskAfterSoftmax:
      changed.masked = MaskedWhen::AfterSoftmax;
      break;
    case AttentionBug::PaddingDropped:
      changed.padding = PaddingUse::None;
      break;
    case AttentionBug::PaddingFilled:
      changed.padding = PaddingUse::FillKeys;
      break;
    case AttentionBug::PaddingOnQueryAxis:
      changed.padding = PaddingUse::FillQueries;
      break;
    case AttentionBug::PaddingOnHeadAxis:
      changed.padding = PaddingUse::FillHeads;
      break;
    case AttentionBug::SoftmaxOverQueries:
      changed.softmax_over_queries = true;
      break;
    case AttentionBug::MergedByView:
      changed.merged_by_view = true;
      break;
    case AttentionBug::KvHeadsTiled:
      changed.kv_heads_tiled = true;
      break;
    default:  // rules and scale hold the others already
      break;
  }
  return changed;
}

/// Goes through the values and the context once more, with what the edit makes of them.
template <class T>
void attend_edited(const MultiHeadAttention<T>& module, const MultiHeadAttentionInputs<T>& inputs,
                   const BlockEdit<T>& edit, MultiHeadAttentionResult<T>& result) {
  const ModuleSizes sizes = checked_sizes(module.options());
  edit(BlockSite::Value, split_heads(result.value_projection.view(), sizes.kv_heads));
  engine::forward<T>(
      {.query = result.query_heads.view(),
       .key = result.key_heads.view(),
       .value = split_heads(std::as_const(result.value_projection).view(), sizes.kv_heads),
       .mask = inputs.mask,
       .scale = module.options().scale},
      {.context = result.context.view()});
  edit(BlockSite::Context, result.context.view());
  const Tensor<T, 3> merged = merge_heads(std::as_const(result.context).view());
  project(merged.view(), module.parameters().output_weight, module.parameters().output_bias,
          result.output);
}

/// Collects the gradient of a matrix that serves twice in that of its first use.
template <class T>
void add_tied(Tying tying, MultiHeadAttentionParameters<T>& gradients) {
  if (tying == Tying::QueryIsKey) {
    add(gradients.key_weight, gradients.query_weight);
    if (gradients.query_bias) add(*gradients.key_bias, *gradients.query_bias);
  } else if (tying == Tying::KeyIsValue) {
    add(gradients.value_weight, gradients.key_weight);
    if (gradients.key_bias) add(*gradients.value_bias, *gradients.key_bias);
  }
}

}  // namespace

void check_attention(const BlockAttentionOptions& options) {
  const ModuleSizes sizes = checked_sizes(options.module);
  if (options.window && *options.window < 1) refuse("window", "1 or more", *options.window);
  if (options.change.tying == Tying::QueryIsKey && sizes.heads != sizes.kv_heads) {
    refuse("kv_heads", fmt::format("{} where W_q = W_k", sizes.heads), sizes.kv_heads);
  }
  const ProjectionBiases& biases = options.module.biases;
  const auto check_biases = [&](std::string_view name, bool first, bool second) {
    if (first != second) {
      throw std::invalid_argument(fmt::format(
          "{}: biases: expected {} both or neither, for they are tied, got one", kOperation, name));
    }
  };
  if (options.change.tying == Tying::QueryIsKey) {
    check_biases("query and key", biases.query, biases.key);
  } else if (options.change.tying == Tying::KeyIsValue) {
    check_biases("key and value", biases.key, biases.value);
  }
  if (options.change.bug) check_bug(*options.change.bug, options, sizes);
}

Mask position_rules(const BlockAttentionOptions& options) {
  const AttentionChange& change = options.change;
  if (has(change, AttentionBug::CausalDropped)) return {};
  if (change.mask) return *change.mask;
  Mask causal = Mask::causal(
      has(change, AttentionBug::CausalOffByOne) ? std::optional(Corner::at({1})) : std::nullopt);
  if (!options.window) return causal;
  const Index left = *options.window - (has(change, AttentionBug::WindowOffByOne) ? 0 : 1);
  return causal & Mask::sliding_window({.left = left});
}

double score_scale(const BlockAttentionOptions& options) {
  const ModuleSizes sizes = checked_sizes(options.module);
  const AttentionChange& change = options.change;
  const double root = std::sqrt(static_cast<double>(sizes.head_width));
  double scale = 1;
  if (change.matching == Matching::DotProduct) scale = 1 / root;
  if (change.matching == Matching::Cosine) scale = root;
  scale = change.scale.value_or(scale);
  if (has(change, AttentionBug::ScaleMissing)) return 1;
  if (has(change, AttentionBug::ScaleTwice)) return scale * scale;
  return scale;
}

bool runs_on_engine(const AttentionChange& change) {
  if (change.matching != Matching::DotProduct) return false;
  if (!change.bug) return true;
  switch (*change.bug) {
    case AttentionBug::CausalDropped:
    case AttentionBug::CausalOffByOne:
    case AttentionBug::WindowOffByOne:
    case AttentionBug::PaddingDropped:
    case AttentionBug::ScaleMissing:
    case AttentionBug::ScaleTwice:
      return true;
    default:
      return false;
  }
}

template <class T>
BlockAttentionResult<T> attend(const BlockAttentionOptions& options,
                               const BlockAttentionParameters<T>& parameters,
                               const Tensor<T, 3>& input,
                               const std::optional<Tensor<bool, 2>>& keep,
                               ReturnWeights return_weights, const BlockEdit<T>& edit) {
  if (!runs_on_engine(options.change)) {
    if (edit) {
      throw std::invalid_argument(
          fmt::format("{}: edit: expected attention that the engine computes, got {}", kOperation,
                      options.change.bug ? name_of(*options.change.bug) : "another matching"));
    }
    return attend_changed(changed_options(options), parameters, input, keep);
  }
  // The module holds its parameters, so they are copied: small beside what it does with them.
  const MultiHeadAttention<T> module(engine_options(options), parameters.projections);
  const MultiHeadAttentionInputs<T> inputs = engine_inputs(options, input, keep);
  BlockAttentionResult<T> result{.module = module.forward(inputs, return_weights)};
  if (edit) attend_edited(module, inputs, edit, result.module);
  return result;
}

template <class T>
BlockAttentionGradients<T> attend_backward(const BlockAttentionOptions& options,
                                           const BlockAttentionParameters<T>& parameters,
                                           const Tensor<T, 3>& input,
                                           const std::optional<Tensor<bool, 2>>& keep,
                                           const BlockAttentionResult<T>& result,
                                           const Tensor<T, 3>& output_gradient) {
  BlockAttentionGradients<T> gradients;
  if (runs_on_engine(options.change)) {
    const MultiHeadAttention<T> module(engine_options(options), parameters.projections);
    MultiHeadAttentionGradients<T> of_module =
        module.backward(engine_inputs(options, input, keep), result.module, output_gradient.view());
    gradients.input = std::move(of_module.query);
    gradients.parameters.projections = std::move(of_module.parameters);
  } else {
    gradients = attend_changed_backward(changed_options(options), parameters, input, keep, result,
                                        output_gradient);
  }
  add_tied(options.change.tying, gradients.parameters.projections);
  return gradients;
}

#define QKV_INSTANTIATE_ATTENTION(T)                                                         \
  template BlockAttentionResult<T> attend(                                                   \
      const BlockAttentionOptions&, const BlockAttentionParameters<T>&, const Tensor<T, 3>&, \
      const std::optional<Tensor<bool, 2>>&, ReturnWeights, const BlockEdit<T>&);            \
  template BlockAttentionGradients<T> attend_backward(                                       \
      const BlockAttentionOptions&, const BlockAttentionParameters<T>&, const Tensor<T, 3>&, \
      const std::optional<Tensor<bool, 2>>&, const BlockAttentionResult<T>&, const Tensor<T, 3>&);

QKV_INSTANTIATE_ATTENTION(double)
QKV_INSTANTIATE_ATTENTION(float)

#undef QKV_INSTANTIATE_ATTENTION

}  // namespace qkv
