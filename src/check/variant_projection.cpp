#include "check/variant_projection.h"

#include <cmath>

namespace qkv {
namespace {

/// Rows of one block of a packed weight that belong to q, k or v. By head: each key/value head stands behind the query
/// heads that read it.
Index block_rows(const AttentionShape& shape, Index blocks, std::size_t tensor) {
  const HeadSizes sizes = sizes_of(shape, tensor);
  return sizes.heads / blocks * sizes.width;
}

/// The rows of the packed weight in the order of the file.
std::vector<WeightRow> packed_rows(const AttentionShape& shape, Packing packing) {
  const Index blocks = packing == Packing::ByHead ? shape.kv_heads : 1;
  std::vector<WeightRow> rows;
  for (Index block = 0; block < blocks; ++block) {
    for (std::size_t w = 0; w < 3; ++w) {
      const Index count = block_rows(shape, blocks, w);
      for (Index row = 0; row < count; ++row) rows.push_back({w, block * count + row});
    }
  }
  return rows;
}

/// The place in the packed weight that a reader takes for a row of q, k or v.
Index packed_place(const AttentionShape& shape, const ProjectionVariant& variant,
                   std::size_t tensor, Index row) {
  const Index blocks = variant.packed_by_head ? shape.kv_heads : 1;
  const Index count = block_rows(shape, blocks, tensor);
  const Index block = row / count;
  Index place = 0;
  for (const std::size_t w : *variant.packed_order) place += block * block_rows(shape, blocks, w);
  for (const std::size_t w : *variant.packed_order) {
    if (w == tensor) break;
    place += block_rows(shape, blocks, w);
  }
  return place + row % count;
}

const Tensor<double, 2>& weight_of(const DumpProjections& projections, std::size_t i) {
  if (i == kQuery) return projections.query_weight;
  return i == kKey ? projections.key_weight : projections.value_weight;
}
const Tensor<double, 1>* bias_of(const DumpProjections& projections, std::size_t i) {
  const auto pointer = [](const auto& bias) { return bias ? &*bias : nullptr; };
  if (i == kQuery) return pointer(projections.query_bias);
  if (i == kKey) return pointer(projections.key_bias);
  return i == kValue ? pointer(projections.value_bias) : nullptr;
}

}  // namespace

HeadSizes sizes_of(const AttentionShape& shape, std::size_t tensor) {
  if (tensor == kQuery) return {shape.heads, shape.queries, shape.key_width};
  return {shape.kv_heads, shape.keys, tensor == kKey ? shape.key_width : shape.value_width};
}

double activate(Activation activation, double x) {
  switch (activation) {
    case Activation::Relu:
      return x > 0 ? x : 0;
    case Activation::Gelu:
      return x * 0.5 * std::erfc(-x / std::sqrt(2.0));
    case Activation::Tanh:
      return std::tanh(x);
    case Activation::Silu:
      return x / (1 + std::exp(-x));
    case Activation::Sigmoid:
      return 1 / (1 + std::exp(-x));
    default:
      return x;
  }
}

bool reprojected(const ProjectionVariant& variant, std::size_t tensor) {
  return variant.from_input || variant.packed_order || variant.weight[tensor] != tensor ||
         variant.bias[tensor] != tensor || variant.transposed[tensor] ||
         variant.activation[tensor] != Activation::None;
}

Projector::Projector(const Dump& dump, const ProjectionVariant& variant, std::size_t tensor)
    : dump_(dump), variant_(variant), tensor_(tensor) {
  if (variant.packed_order) {
    packed_ = packed_rows(dump.shape, dump.projections->packing.value_or(Packing::ByInput));
  }
}

double Projector::operator()(Index b, Index token, Index column) const {
  const DumpProjections& projections = *dump_.projections;
  WeightRow source{variant_.weight[tensor_], column};
  if (variant_.packed_order) {
    const Index place = packed_place(dump_.shape, variant_, tensor_, column);
    source = packed_[static_cast<std::size_t>(place)];
  }
  const Tensor<double, 3>& input = tensor_ == kQuery ? projections.input : projections.key_input;
  const Tensor<double, 2>& weight = weight_of(projections, source.weight);
  const Index width = input.shape(2);
  const double* x = input.data() + (b * input.shape(1) + token) * width;
  double sum = 0;
  if (variant_.transposed[tensor_]) {
    for (Index i = 0; i < width; ++i) sum += x[i] * weight(i, source.row);
  } else {
    const double* w = weight.data() + source.row * width;
#pragma omp simd reduction(+ : sum)
    for (Index i = 0; i < width; ++i) sum += x[i] * w[i];
  }
  const std::size_t bias = variant_.bias[tensor_] > kValue ? kValue + 1
                           : variant_.packed_order         ? source.weight
                                                           : variant_.bias[tensor_];
  if (const auto* b_of = bias_of(projections, bias)) sum += (*b_of)(source.row);
  return activate(variant_.activation[tensor_], sum);
}

}  // namespace qkv
