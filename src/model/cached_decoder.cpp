#include "model/cached_decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "model/decoder_parts.h"
#include "model/elementwise.h"
#include "model/heads.h"
#include "module/module_sizes.h"
#include "qkv/engine.h"

namespace qkv {
namespace {

/// Whether each token sees those before it, as a cache has it, and all else is the engine's too.
bool can_be_cached(const AttentionChange& change) {
  const bool only_scale = !change.bug || *change.bug == AttentionBug::ScaleMissing ||
                          *change.bug == AttentionBug::ScaleTwice;
  return only_scale && !change.mask && change.matching == Matching::DotProduct;
}

}  // namespace

template <class T>
CachedDecoder<T>::CachedDecoder(const Decoder<T>& decoder) : decoder_(decoder) {
  const DecoderOptions& options = decoder.options();
  for (Index block = 0; block < options.layers; ++block) {
    if (!can_be_cached(decoder.change(block))) {
      throw std::invalid_argument(fmt::format(
          "CachedDecoder: block {}: expected attention changed in scale and tying alone", block));
    }
    const ModuleSizes sizes = checked_sizes(block_options(options, block).attention.module);
    caches_.emplace_back(KvCacheOptions{.batch = 1,
                                        .kv_heads = sizes.kv_heads,
                                        .key_width = sizes.head_width,
                                        .value_width = sizes.value_head_width});
  }
}

template <class T>
std::vector<T> CachedDecoder<T>::read(std::span<const Index> tokens) {
  const DecoderOptions& options = decoder_.options();
  const auto count = static_cast<Index>(tokens.size());
  if (count < 1 || length_ + count > options.context) {
    throw std::invalid_argument(
        fmt::format("CachedDecoder::read: tokens: expected 1 to {} after {}, got {}",
                    options.context - length_, length_, count));
  }
  Tensor<Index, 2> sequence({1, count});
  std::copy(tokens.begin(), tokens.end(), sequence.data());
  const DecoderParameters<T>& parameters = decoder_.tensors();
  Tensor<T, 3> x = embed(parameters, sequence, length_);
  for (Index block = 0; block < options.layers; ++block) run_block(block, x);
  length_ += count;
  const Tensor<T, 3> last = contiguous_copy(std::as_const(x).view().slice(1, count - 1, count));
  const Tensor<T, 3> normed = norm(last, parameters.final_norm, options.norm_epsilon);
  const Tensor<T, 3> logits = projected(normed, head_of(parameters), std::optional<Tensor<T, 1>>());
  return {logits.elements().begin(), logits.elements().end()};
}

template <class T>
void CachedDecoder<T>::run_block(Index block, Tensor<T, 3>& x) {
  const BlockOptions options = block_options(decoder_.options(), block);
  const ModuleSizes sizes = checked_sizes(options.attention.module);
  const BlockParameters<T>& parameters = decoder_.tensors().blocks[static_cast<std::size_t>(block)];
  const MultiHeadAttentionParameters<T>& p = parameters.attention.projections;
  const Tensor<T, 3> normed = norm(x, parameters.attention_norm, options.norm_epsilon);
  const Index count = x.shape(1);

  const HeadPositions positions{.rotary = options.attention.module.rotary, .first = length_};
  const Tensor<T, 4> query =
      enter_scores(projected(normed, p.query_weight, p.query_bias), sizes.heads, positions);
  const Tensor<T, 4> key =
      enter_scores(projected(normed, p.key_weight, p.key_bias), sizes.kv_heads, positions);
  const Tensor<T, 3> value = projected(normed, p.value_weight, p.value_bias);
  KvCache<T>& cache = caches_[static_cast<std::size_t>(block)];
  cache.append(key.view(), split_heads(value.view(), sizes.kv_heads));

  Mask mask;
  if (options.attention.window) {
    mask = Mask::sliding_window(
        {.left = *options.attention.window - 1, .corner = Corner::bottom_right()});
  }
  Tensor<T, 4> context({1, sizes.heads, count, sizes.value_head_width});
  engine::forward(cache,
                  {.query = query.view(), .mask = mask, .scale = score_scale(options.attention)},
                  {.context = context.view()});
  add(projected(merge_heads(std::as_const(context).view()), p.output_weight, p.output_bias), x);
  if (parameters.mlp) add(run_mlp(*parameters.mlp, x, options.norm_epsilon).first, x);
}

template class CachedDecoder<double>;
template class CachedDecoder<float>;

}  // namespace qkv
