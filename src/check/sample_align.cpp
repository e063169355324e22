#include "check/sample_align.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "qkv/reference.h"

namespace qkv {
namespace {

/// [B,T,W] as [B,1,T,W], so that every comparison goes over batch, heads and rows.
template <class T>
TensorView<const T, 4> with_one_head(const Tensor<T, 3>& tensor) {
  return {tensor.data(), {tensor.shape(0), 1, tensor.shape(1), tensor.shape(2)}};
}

enum class Rows : std::uint8_t { All, ThatSeeAKey };

/// Fills in rows of one computation.
class Comparison {
 public:
  Comparison(const LayerSample<double>& recorded, std::string computed_by,
             std::vector<SampleRow>& rows)
      : bound_(recorded.mask.bind(
            "layer sample", {recorded.batch, recorded.heads, recorded.queries, recorded.keys})),
        computed_by_(std::move(computed_by)),
        rows_(rows) {}

  template <class T>
  void add(const std::string& tensor, Rows which, const TensorView<const T, 4>& ours,
           const TensorView<const double, 4>& recorded) {
    SampleRow row;
    row.computed_by = computed_by_;
    row.tensor = tensor;
    const auto [batch, heads, tokens, width] = recorded.shape();
    for (Index b = 0; b < batch; ++b) {
      for (Index h = 0; h < heads; ++h) {
        for (Index t = 0; t < tokens; ++t) {
          if (which == Rows::ThatSeeAKey && !bound_.row_sees_a_key(b, h, t)) {
            ++row.rows_left_out;
            continue;
          }
          ++row.rows;
          for (Index i = 0; i < width; ++i) add_entry(ours(b, h, t, i), recorded(b, h, t, i), row);
        }
      }
    }
    rows_.push_back(row);
  }

 private:
  static void add_entry(double ours, double recorded, SampleRow& row) {
    double difference = std::fabs(ours - recorded);
    if (std::isnan(difference)) difference = std::numeric_limits<double>::infinity();
    row.difference = std::max(row.difference, difference);
    row.largest_entry = std::max(row.largest_entry, std::fabs(recorded));
  }

  BoundMask bound_;
  std::string computed_by_;
  std::vector<SampleRow>& rows_;
};

/// Everything from x: projections, rotary positions, attention, merge, output projection.
template <class T>
void align_module(const TensorFile& file, const LayerSample<double>& recorded,
                  std::vector<SampleRow>& rows) {
  const auto sample = read_layer_sample<T>(file);
  const MultiHeadAttention<T> module(sample.module_options(), *sample.parameters);
  MultiHeadAttentionInputs<T> inputs;
  inputs.query = sample.input->view();
  inputs.mask = sample.mask;
  if (sample.positions) inputs.query_positions = sample.positions->view();
  const auto result = module.forward(inputs, ReturnWeights::Yes);

  Comparison comparison(recorded, fmt::format("module, {}", name_of(dtype_of<T>)), rows);
  const auto projected = [](const Tensor<T, 3>& merged, Index heads) {
    return split_heads(merged.view(), heads);
  };
  if (recorded.query_before_rotary) {
    comparison.add("q_before_rope", Rows::All, projected(result.query_projection, sample.heads),
                   recorded.query_before_rotary->view());
  }
  if (recorded.key_before_rotary) {
    comparison.add("k_before_rope", Rows::All, projected(result.key_projection, sample.kv_heads),
                   recorded.key_before_rotary->view());
  }
  if (recorded.query) {
    comparison.add("q", Rows::All, result.query_heads.view(), recorded.query->view());
    comparison.add("k", Rows::All, result.key_heads.view(), recorded.key->view());
    comparison.add("v", Rows::All, projected(result.value_projection, sample.kv_heads),
                   recorded.value->view());
  }
  if (recorded.weights) {
    comparison.add("weights", Rows::ThatSeeAKey, std::as_const(*result.weights).view(),
                   recorded.weights->view());
  }
  if (recorded.context) {
    const Tensor<T, 3> merged = merge_heads(result.context.view());
    comparison.add("context", Rows::ThatSeeAKey, with_one_head(merged),
                   with_one_head(*recorded.context));
  }
  if (recorded.output) {
    comparison.add("out", Rows::ThatSeeAKey, with_one_head(result.output),
                   with_one_head(*recorded.output));
  }
}

/// The two steps of attention alone, from the recorded query, key and value.
void align_oracle(const LayerSample<double>& recorded, std::vector<SampleRow>& rows) {
  AttentionInputs<double> inputs;
  inputs.query = recorded.query->view();
  inputs.key = recorded.key->view();
  inputs.value = recorded.value->view();
  inputs.mask = recorded.mask;
  Tensor<double, 4> context(
      {recorded.batch, recorded.heads, recorded.queries, recorded.value_head_width});
  Tensor<double, 4> weights({recorded.batch, recorded.heads, recorded.queries, recorded.keys});
  reference::forward(inputs, {context.view(), weights.view(), std::nullopt});

  Comparison comparison(recorded, "oracle on q, k, v", rows);
  if (recorded.weights) {
    comparison.add("weights", Rows::ThatSeeAKey, std::as_const(weights).view(),
                   recorded.weights->view());
  }
  if (recorded.context) {
    const Tensor<double, 3> merged = merge_heads(context.view());
    comparison.add("context", Rows::ThatSeeAKey, with_one_head(merged),
                   with_one_head(*recorded.context));
  }
}

std::string describe(const LayerSample<double>& sample) {
  std::string text = fmt::format("B={} T={} ", sample.batch, sample.queries);
  if (sample.keys != sample.queries) text += fmt::format("S={} ", sample.keys);
  text += fmt::format("H={} ", sample.heads);
  if (sample.kv_heads != sample.heads) text += fmt::format("Hkv={} ", sample.kv_heads);
  text += fmt::format("Dh={}, mask: {}", sample.head_width, sample.mask.describe());
  if (sample.rotary) text += fmt::format(", rotary positions of base {}", sample.rotary->base);
  return text;
}

}  // namespace

SampleReport align_sample(const TensorFile& file) {
  const auto recorded = read_layer_sample<double>(file);
  SampleReport report{recorded.source, describe(recorded), {}};
  std::vector<SampleRow>& rows = report.rows;
  if (recorded.parameters) {
    align_module<float>(file, recorded, rows);
    align_module<double>(file, recorded, rows);
  }
  if (recorded.query) align_oracle(recorded, rows);
  if (rows.empty()) {
    throw std::invalid_argument(
        "layer sample: tensor names: expected recorded results (q, k, v, weights, context or out), "
        "got none");
  }
  return report;
}

}  // namespace qkv
