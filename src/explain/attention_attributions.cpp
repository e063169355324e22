#include "explain/attention_attributions.h"

#include <algorithm>
#include <cmath>

#include "engine/matrix_product.h"

namespace qkv::explain {
namespace {

engine::MatrixView<double> matrix_of(const Tensor<double, 2>& matrix) {
  return {matrix.data(), matrix.shape(0), matrix.shape(1), matrix.shape(1)};
}

/// v_h·W_o,h of every key: [T,D].
Tensor<double, 2> delivered(const LayerRecord& layer, Index head) {
  const auto [kv_heads, tokens, width] = layer.values.shape();
  const Index group = layer.weights.shape(0) / kv_heads;
  const auto [out, merged] = layer.output_weight.shape();
  Tensor<double, 2> result({tokens, out});
  const engine::MatrixView<double> output{layer.output_weight.data() + head * width, out, width,
                                          merged};
  engine::multiply({&layer.values(head / group, 0, 0), tokens, width, width}, output.transposed(),
                   engine::Result::Replaced, result.data());
  return result;
}

double length(const double* vector, Index width) {
  double squares = 0;
  for (Index d = 0; d < width; ++d) squares += vector[d] * vector[d];
  return std::sqrt(squares);
}

template <class OfLayer>
std::vector<double> mean_of_layers(const Records& records, const ExplainedText& text,
                                   OfLayer of_layer) {
  std::vector<double> mean(text.tokens.size(), 0);
  const auto layers = static_cast<Index>(records.layers.size());
  for (Index i = 0; i < layers; ++i) {
    const std::vector<double> scores = of_layer(records, text, i);
    for (std::size_t t = 0; t < mean.size(); ++t)
      mean[t] += scores[t] / static_cast<double>(layers);
  }
  return mean;
}

}  // namespace

Tensor<double, 2> mean_over_heads(const Tensor<double, 3>& weights) {
  const auto [heads, queries, keys] = weights.shape();
  Tensor<double, 2> mean({queries, keys});
  for (Index h = 0; h < heads; ++h) {
    for (Index i = 0; i < queries * keys; ++i) {
      mean.data()[i] += weights.data()[h * queries * keys + i] / static_cast<double>(heads);
    }
  }
  return mean;
}

std::vector<double> read_rows(const Tensor<double, 2>& matrix, std::span<const double> readout) {
  std::vector<double> row(static_cast<std::size_t>(matrix.shape(1)), 0);
  for (std::size_t t = 0; t < readout.size(); ++t) {
    for (std::size_t s = 0; s < row.size(); ++s) {
      row[s] += readout[t] * matrix(static_cast<Index>(t), static_cast<Index>(s));
    }
  }
  return row;
}

std::vector<double> raw_attention(const Records& records, const ExplainedText& text,
                                  const HeadPlace& head) {
  const Tensor<double, 3>& weights =
      records.layers.at(static_cast<std::size_t>(head.layer)).weights;
  const auto [heads, queries, keys] = weights.shape();
  Tensor<double, 2> one({queries, keys});
  std::copy_n(&weights(head.head, 0, 0), queries * keys, one.data());
  return read_rows(one, text.readout);
}

std::vector<double> raw_attention(const Records& records, const ExplainedText& text, Index layer) {
  return read_rows(mean_over_heads(records.layers.at(static_cast<std::size_t>(layer)).weights),
                   text.readout);
}

std::vector<double> raw_attention(const Records& records, const ExplainedText& text) {
  return mean_of_layers(records, text, [](const Records& r, const ExplainedText& t, Index layer) {
    return raw_attention(r, t, layer);
  });
}

Tensor<double, 2> delivered_norms(const LayerRecord& layer, Index head) {
  const Index tokens = layer.weights.shape(1);
  const Tensor<double, 2> value = delivered(layer, head);
  Tensor<double, 2> norms({tokens, tokens});
  for (Index s = 0; s < tokens; ++s) {
    const double norm = length(&value(s, 0), value.shape(1));
    for (Index t = 0; t < tokens; ++t) norms(t, s) = layer.weights(head, t, s) * norm;
  }
  return norms;
}

Tensor<double, 2> delivered_norms(const LayerRecord& layer) {
  const auto [heads, queries, keys] = layer.weights.shape();
  std::vector<Tensor<double, 2>> values;
  for (Index h = 0; h < heads; ++h) values.push_back(delivered(layer, h));
  const Index width = values.front().shape(1);
  Tensor<double, 2> norms({queries, keys});
  std::vector<double> sum(static_cast<std::size_t>(width));
  for (Index t = 0; t < queries; ++t) {
    for (Index s = 0; s < keys; ++s) {
      std::ranges::fill(sum, 0.0);
      for (Index h = 0; h < heads; ++h) {
        const double weight = layer.weights(h, t, s);
        const double* value = &values[static_cast<std::size_t>(h)](s, 0);
        for (std::size_t d = 0; d < sum.size(); ++d) sum[d] += weight * value[d];
      }
      norms(t, s) = length(sum.data(), width);
    }
  }
  return norms;
}

std::vector<double> attention_times_norm(const Records& records, const ExplainedText& text,
                                         Index layer) {
  return read_rows(delivered_norms(records.layers.at(static_cast<std::size_t>(layer))),
                   text.readout);
}

std::vector<double> attention_times_norm(const Records& records, const ExplainedText& text) {
  return mean_of_layers(records, text, [](const Records& r, const ExplainedText& t, Index layer) {
    return attention_times_norm(r, t, layer);
  });
}

Tensor<double, 2> rollout(const Records& records) {
  const Index tokens = records.last.shape(0);
  Tensor<double, 2> result({tokens, tokens});
  for (Index t = 0; t < tokens; ++t) result(t, t) = 1;
  for (const LayerRecord& layer : records.layers) {
    Tensor<double, 2> step = mean_over_heads(layer.weights);
    for (double& weight : step.elements()) weight *= 0.5;
    for (Index t = 0; t < tokens; ++t) step(t, t) += 0.5;
    Tensor<double, 2> next({tokens, tokens});
    engine::multiply(matrix_of(step), matrix_of(result), engine::Result::Replaced, next.data());
    result = std::move(next);
  }
  return result;
}

std::vector<double> attention_rollout(const Records& records, const ExplainedText& text) {
  return read_rows(rollout(records), text.readout);
}

}  // namespace qkv::explain
