#include "explain/block_stack.h"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "engine/matrix_product.h"
#include "module/projection.h"

namespace qkv::explain {
namespace {

/// dP = (dOut·W_o) split by head · Vᵀ.
Tensor<double, 4> weights_gradient(const Tensor<double, 2>& output_weight,
                                   const MultiHeadAttentionResult<double>& result,
                                   const Tensor<double, 3>& output_gradient) {
  const auto [batch, heads, queries, width] = result.context.shape();
  const Index keys = result.value_projection.shape(1);
  const Index value_width = result.value_projection.shape(2);
  const Index group = heads / (value_width / width);
  Tensor<double, 3> merged({batch, queries, heads * width});
  add_input_gradient<double>(output_gradient.view(), output_weight, merged);
  auto gradient = Tensor<double, 4>::uninitialized({batch, heads, queries, keys});
  for (Index n = 0; n < batch; ++n) {
    for (Index h = 0; h < heads; ++h) {
      const engine::MatrixView<double> context{&merged(n, 0, h * width), queries, width,
                                               heads * width};
      const engine::MatrixView<double> value{&result.value_projection(n, 0, h / group * width),
                                             keys, width, value_width};
      engine::multiply(context, value.transposed(), engine::Result::Replaced,
                       &gradient(n, h, 0, 0));
    }
  }
  return gradient;
}

}  // namespace

BlockStack::BlockStack(std::vector<Layer> layers) : layers_(std::move(layers)) {
  for (const Layer& layer : layers_) {
    const AttentionChange& change = layer.options.attention.change;
    if (runs_on_engine(change) && change.bug != AttentionBug::PaddingDropped) continue;
    throw std::invalid_argument(
        fmt::format("explain: model: expected attention that MultiHeadAttention computes and keys "
                    "can be hidden "
                    "from, got {}",
                    change.bug ? class_of(*change.bug) : "another way of matching"));
  }
}

Tensor<double, 3> BlockStack::run(const VariantBatch& batch, Tensor<double, 3> states) const {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto layer = static_cast<Index>(i);
    states = run_block(layers_[i].options, *layers_[i].parameters, std::move(states),
                       batch.keep(layer), ReturnWeights::No, batch.edit(layer))
                 .first;
  }
  return states;
}

BlockStack::PlainRun BlockStack::run_plain(Tensor<double, 3> states) const {
  PlainRun run;
  for (const Layer& layer : layers_) {
    auto [next, block] = run_block(layer.options, *layer.parameters, std::move(states),
                                   std::nullopt, ReturnWeights::Yes);
    states = std::move(next);
    run.blocks.push_back(std::move(block));
  }
  run.last = std::move(states);
  return run;
}

Records BlockStack::records(const PlainRun& run) const {
  Records records;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const BlockResult<double>& block = run.blocks[i];
    const MultiHeadAttentionResult<double>& attention = block.attention.module;
    const Index kv_heads = attention.key_heads.shape(1);
    records.layers.push_back(
        {first_of(block.input), first_of(*attention.weights),
         first_of(contiguous_copy(split_heads(attention.value_projection.view(), kv_heads))),
         layers_[i].parameters->attention.projections.output_weight});
  }
  records.last = first_of(run.last);
  return records;
}

std::vector<Tensor<double, 4>> BlockStack::backward(const PlainRun& run,
                                                    Tensor<double, 3>& gradient) const {
  std::vector<Tensor<double, 4>> weights(layers_.size());
  for (std::size_t i = layers_.size(); i-- > 0;) {
    const BlockParameters<double>& parameters = *layers_[i].parameters;
    const BlockGradients<double> gradients =
        run_block_backward(layers_[i].options, parameters, std::nullopt, run.blocks[i], gradient);
    weights[i] = weights_gradient(parameters.attention.projections.output_weight,
                                  run.blocks[i].attention.module, gradients.attention_output);
  }
  return weights;
}

}  // namespace qkv::explain
