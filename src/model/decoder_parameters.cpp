#include <algorithm>
#include <cmath>

#include "model/decoder_parts.h"
#include "model/parameter_list.h"
#include "model/random.h"

namespace qkv {
namespace {

constexpr double kEmbeddingDeviation = 0.02;

template <class T, int Rank>
void fill_normal(Tensor<T, Rank>& tensor, double deviation, Random& random) {
  for (T& element : tensor.elements()) element = static_cast<T>(deviation * random.normal());
}

/// Normal with deviation factor/√(columns).
template <class T>
void fill_weight(Tensor<T, 2>& weight, double factor, Random& random) {
  fill_normal(weight, factor / std::sqrt(static_cast<double>(weight.shape(1))), random);
}

template <class T>
BlockParameters<T> initial_block(const DecoderOptions& options, Index block, Random& random) {
  const BlockAttentionOptions attention = block_options(options, block).attention;
  const Index width = options.model_width;
  const double residual = 1 / std::sqrt(2.0 * static_cast<double>(options.layers));
  BlockParameters<T> parameters;
  parameters.attention_norm = initial_norm<T>(options.norm, width);
  MultiHeadAttentionParameters<T>& p = parameters.attention.projections;
  p = zero_parameters<T>(attention.module);
  fill_weight(p.query_weight, 1, random);
  fill_weight(p.key_weight, 1, random);
  fill_weight(p.value_weight, 1, random);
  fill_weight(p.output_weight, residual, random);
  if (attention.change.matching == Matching::Additive) {
    const Index head_width = p.query_weight.shape(0) / options.heads;
    parameters.attention.matching.emplace(Extents<2>{options.heads, head_width});
    fill_weight(*parameters.attention.matching, 1, random);
  }
  const Index hidden = options.mlp_width.value_or(4 * width);
  if (hidden == 0) return parameters;
  MlpParameters<T>& mlp = parameters.mlp.emplace();
  mlp.norm = initial_norm<T>(options.norm, width);
  mlp.in_weight = Tensor<T, 2>({hidden, width});
  mlp.in_bias = Tensor<T, 1>({hidden});
  mlp.out_weight = Tensor<T, 2>({width, hidden});
  mlp.out_bias = Tensor<T, 1>({width});
  fill_weight(mlp.in_weight, 1, random);
  fill_weight(mlp.out_weight, residual, random);
  return parameters;
}

}  // namespace

const AttentionChange& change_of(const DecoderOptions& options, Index block) {
  static const AttentionChange kNone;
  if (options.changes.empty()) return kNone;
  return options.changes[options.changes.size() == 1 ? 0 : static_cast<std::size_t>(block)];
}

BlockOptions block_options(const DecoderOptions& options, Index block) {
  MultiHeadAttentionOptions module{.model_width = options.model_width,
                                   .heads = options.heads,
                                   .kv_heads = options.kv_heads,
                                   .head_width = options.head_width,
                                   .biases = options.biases};
  if (options.positions == PositionKind::Rotary) module.rotary = {.base = options.rotary_base};
  return {.attention = {.module = module,
                        .window = options.window,
                        .change = change_of(options, block)},
          .norm_epsilon = options.norm_epsilon};
}

template <class T>
DecoderParameters<T> initial_parameters(const DecoderOptions& options, std::uint64_t seed) {
  Random random(seed);
  DecoderParameters<T> parameters;
  parameters.token_embedding = Tensor<T, 2>({options.vocabulary, options.model_width});
  fill_normal(parameters.token_embedding, kEmbeddingDeviation, random);
  if (options.positions == PositionKind::Learned) {
    parameters.position_embedding.emplace(Extents<2>{options.context, options.model_width});
    fill_normal(*parameters.position_embedding, kEmbeddingDeviation, random);
  }
  for (Index block = 0; block < options.layers; ++block) {
    parameters.blocks.push_back(initial_block<T>(options, block, random));
  }
  parameters.final_norm = initial_norm<T>(options.norm, options.model_width);
  if (!options.tied_head) {
    parameters.head.emplace(Extents<2>{options.vocabulary, options.model_width});
    fill_normal(*parameters.head, kEmbeddingDeviation, random);
  }
  tie(options, parameters);
  return parameters;
}

template <class T>
void tie(const DecoderOptions& options, DecoderParameters<T>& parameters) {
  for (std::size_t i = 0; i < parameters.blocks.size(); ++i) {
    MultiHeadAttentionParameters<T>& p = parameters.blocks[i].attention.projections;
    switch (change_of(options, static_cast<Index>(i)).tying) {
      case Tying::QueryIsKey:
        p.key_weight = p.query_weight;
        p.key_bias = p.query_bias;
        break;
      case Tying::KeyIsValue:
        p.value_weight = p.key_weight;
        p.value_bias = p.key_bias;
        break;
      case Tying::None:
        break;
    }
  }
}

template <class T>
Tensor<T, 3> embed(const DecoderParameters<T>& parameters, const Tensor<Index, 2>& tokens,
                   Index first) {
  const auto [batch, count] = tokens.shape();
  const Index width = parameters.token_embedding.shape(1);
  auto output = Tensor<T, 3>::uninitialized({batch, count, width});
  T* row = output.data();
  for (Index b = 0; b < batch; ++b) {
    for (Index t = 0; t < count; ++t, row += width) {
      std::copy_n(&parameters.token_embedding(tokens(b, t), 0), width, row);
      if (!parameters.position_embedding) continue;
      const T* position = &(*parameters.position_embedding)(first + t, 0);
      for (Index d = 0; d < width; ++d) row[d] += position[d];
    }
  }
  return output;
}

#define QKV_INSTANTIATE_DECODER_PARTS(T)                                                  \
  template DecoderParameters<T> initial_parameters(const DecoderOptions&, std::uint64_t); \
  template void tie(const DecoderOptions&, DecoderParameters<T>&);                        \
  template Tensor<T, 3> embed(const DecoderParameters<T>&, const Tensor<Index, 2>&, Index);

QKV_INSTANTIATE_DECODER_PARTS(double)
QKV_INSTANTIATE_DECODER_PARTS(float)

#undef QKV_INSTANTIATE_DECODER_PARTS

}  // namespace qkv
