#include "lab/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "lab/trace_compare.h"
#include "lab/trace_layout.h"
#include "lab/trace_mask.h"
#include "lab/trace_warnings.h"
#include "qkv/reference.h"

namespace qkv::lab {
namespace {

/// Sizes of the call, with what has to fit together before anything is computed.
TraceSizes sizes_of(const ModuleCall& call) {
  const MultiHeadAttentionOptions& options = call.module.options();
  TraceSizes sizes;
  const Tensor<double, 3>& keys = call.key_input ? *call.key_input : call.input;
  sizes.shape = {call.input.shape(0), options.heads, call.input.shape(1), keys.shape(1)};
  sizes.kv_heads = options.kv_heads.value_or(options.heads);
  sizes.head_width = options.head_width.value_or(options.model_width / options.heads);
  sizes.value_head_width = options.value_head_width.value_or(sizes.head_width);
  sizes.model_width = options.model_width;
  return sizes;
}

TraceSizes sizes_of(const HeadTensors& call) {
  const auto& query = call.query.shape();
  return {{query[0], query[1], query[2], call.key.shape(2)},
          call.key.shape(1),
          query[3],
          call.value.shape(3),
          0};
}

/// scale·Q·Kᵀ, every head and row, whatever the mask.
Tensor<double, 4> scaled_scores(const Trace& trace) {
  const auto [batch, heads, queries, keys] = trace.sizes;
  Tensor<double, 4> scores({batch, heads, queries, keys});
  const Index group = trace.kv_heads == 0 ? 1 : heads / trace.kv_heads;
  for (Index b = 0; b < batch; ++b) {
    for (Index h = 0; h < heads; ++h) {
      for (Index t = 0; t < queries; ++t) {
        for (Index s = 0; s < keys; ++s) {
          double dot = 0;
          for (Index d = 0; d < trace.head_width; ++d) {
            dot += trace.query(b, h, t, d) * trace.key(b, h / group, s, d);
          }
          scores(b, h, t, s) = trace.scale * dot;
        }
      }
    }
  }
  return scores;
}

/// What both kinds of call need once query, key, value, weights and context are there.
void complete(Trace& trace, const TraceInput& input,
              const std::optional<Projections>& projections) {
  trace.scores = scaled_scores(trace);
  trace.merged = merge_heads(std::as_const(trace.context).view());
  trace.view = demonstrate_view(std::as_const(trace.context).view());
  trace.layout = describe_layout(trace, projections);
  std::optional<BeforeRotary> before_rotary;
  if (projections) {
    before_rotary = {split_heads(projections->query, trace.sizes.heads),
                     split_heads(projections->key, trace.kv_heads)};
  }
  trace.comparisons = compare(trace, input.recorded, before_rotary);
  trace.warnings = find_warnings(trace, input.recorded);
}

void run(Trace& trace, const TraceInput& input, const ModuleCall& call) {
  MultiHeadAttentionInputs<double> inputs;
  inputs.query = call.input.view();
  if (call.key_input) inputs.key = call.key_input->view();
  inputs.mask = input.mask;
  if (input.bias) inputs.bias = input.bias->view();
  if (call.positions) inputs.query_positions = call.positions->view();
  auto result = call.module.forward(inputs, ReturnWeights::Yes);

  const MultiHeadAttentionOptions& options = call.module.options();
  trace.model_width = options.model_width;
  trace.self_attention = !call.key_input;
  trace.scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(trace.head_width)));
  trace.query = std::move(result.query_heads);
  trace.key = std::move(result.key_heads);
  trace.value =
      contiguous_copy(split_heads(std::as_const(result.value_projection).view(), trace.kv_heads));
  trace.weights = std::move(*result.weights);
  trace.context = std::move(result.context);
  trace.log_sum_exp = std::move(result.log_sum_exp);
  trace.output = std::move(result.output);
  complete(trace, input,
           Projections{std::as_const(result.query_projection).view(),
                       std::as_const(result.key_projection).view(),
                       std::as_const(result.value_projection).view(), options.rotary.has_value()});
}

void run(Trace& trace, const TraceInput& input, const HeadTensors& call) {
  AttentionInputs<double> inputs;
  inputs.query = call.query.view();
  inputs.key = call.key.view();
  inputs.value = call.value.view();
  inputs.mask = input.mask;
  inputs.scale = call.scale;
  if (input.bias) inputs.bias = input.bias->view();
  const auto [batch, heads, queries, keys] = trace.sizes;
  trace.context = Tensor<double, 4>({batch, heads, queries, trace.value_head_width});
  trace.weights = Tensor<double, 4>({batch, heads, queries, keys});
  trace.log_sum_exp = Tensor<double, 3>({batch, heads, queries});
  AttentionOutputs<double> outputs;
  outputs.context = trace.context.view();
  outputs.weights = trace.weights.view();
  outputs.log_sum_exp = trace.log_sum_exp.view();
  reference::forward(inputs, outputs);

  trace.self_attention = queries == keys;
  trace.scale = call.scale.value_or(1 / std::sqrt(static_cast<double>(trace.head_width)));
  trace.query = call.query;
  trace.key = call.key;
  trace.value = call.value;
  complete(trace, input, std::nullopt);
}

}  // namespace

std::string_view name_of(Storage storage) {
  switch (storage) {
    case Storage::Computed:
      return "computed";
    case Storage::View:
      return "view";
    case Storage::Copy:
      return "copy";
    case Storage::Given:
      return "given";
    case Storage::Absent:
      return "absent";
  }
  return "";
}

double needed_bytes(const TraceSizes& sizes) {
  const auto [batch, heads, queries, keys] = sizes.shape;
  // In floating point, which does not overflow. An extent of 0 counts as 1: nothing loops over the
  // other axes for ever just because the tensor is empty.
  const auto bytes = [](Index a, Index b, Index c, Index d) {
    double product = sizeof(double);
    for (const Index extent : {a, b, c, d}) {
      product *= static_cast<double>(std::max<Index>(extent, 1));
    }
    return product;
  };
  const double query = bytes(batch, heads, queries, sizes.head_width);
  const double key = bytes(batch, sizes.kv_heads, keys, sizes.head_width);
  const double value = bytes(batch, sizes.kv_heads, keys, sizes.value_head_width);
  const double context = bytes(batch, heads, queries, sizes.value_head_width);
  const double scores = bytes(batch, heads, queries, keys);
  const double inputs = bytes(batch, queries, sizes.model_width, 1) +
                        bytes(batch, keys, sizes.model_width, 1) +
                        bytes(batch, queries, sizes.model_width, 1);
  const double parameters = 2 * (bytes(heads, sizes.head_width, sizes.model_width, 1) +
                                 bytes(sizes.kv_heads, sizes.head_width, sizes.model_width, 1));
  // Projections beside their split copies; context, merged and the demonstration's copy; scores,
  // weights and the oracle's own.
  return inputs + parameters + 2 * (query + key + value) + 3 * context + 3 * scores;
}

void check_memory(const TraceSizes& sizes, double memory_limit) {
  const double needed = needed_bytes(sizes);
  if (needed <= memory_limit) return;
  const auto [batch, heads, queries, keys] = sizes.shape;
  throw std::invalid_argument(fmt::format(
      "trace: sizes: expected at most {:.0f} bytes of memory (--max-memory), got B={} H={} T={} "
      "S={}, which need {:.0f}",
      memory_limit, batch, heads, queries, keys, needed));
}

Trace trace(const TraceInput& input, double memory_limit) {
  return std::visit(
      [&](const auto& call) {
        const TraceSizes sizes = sizes_of(call);
        check_memory(sizes, memory_limit);
        Trace result;
        result.source = input.source;
        result.sizes = sizes.shape;
        result.kv_heads = sizes.kv_heads;
        result.head_width = sizes.head_width;
        result.value_head_width = sizes.value_head_width;
        result.tokens = input.tokens;
        result.padded_queries = input.padded_queries;
        result.bias = input.bias;
        result.masks = trace_rules(input.mask, sizes.shape);
        result.mask = trace_mask(input.mask, sizes.shape);
        run(result, input, call);
        return result;
      },
      input.call);
}

}  // namespace qkv::lab
