#include "model/decoder.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "model/decoder_parts.h"
#include "model/parameter_list.h"
#include "module/projection.h"

namespace qkv {
namespace {

template <class Got>
[[noreturn]] void refuse(std::string_view operation, std::string_view argument,
                         const std::string& expected, const Got& got) {
  throw std::invalid_argument(
      fmt::format("{}: {}: expected {}, got {}", operation, argument, expected, got));
}

void check_options(const DecoderOptions& options) {
  const auto positive = [](std::string_view name, Index value) {
    if (value < 1) refuse("Decoder", name, "1 or more", value);
  };
  positive("vocabulary", options.vocabulary);
  positive("context", options.context);
  positive("model_width", options.model_width);
  positive("layers", options.layers);
  if (options.mlp_width && *options.mlp_width < 0) {
    refuse("Decoder", "mlp_width", "0 or more", *options.mlp_width);
  }
  if (!(std::isfinite(options.norm_epsilon) && options.norm_epsilon > 0)) {
    refuse("Decoder", "norm_epsilon", "a positive number", options.norm_epsilon);
  }
  const std::size_t changes = options.changes.size();
  if (changes > 1 && changes != static_cast<std::size_t>(options.layers)) {
    refuse("Decoder", "changes",
           fmt::format("none, one, or one for each of {} blocks", options.layers), changes);
  }
  for (Index block = 0; block < options.layers; ++block) {
    check_attention(block_options(options, block).attention);
  }
}

void check_tokens(std::string_view operation, std::string_view argument,
                  const Tensor<Index, 2>& tokens, Index lowest, Index vocabulary) {
  for (const Index token : tokens.elements()) {
    if (token < lowest || token >= vocabulary) {
      refuse(operation, argument, fmt::format("{} to {}", lowest, vocabulary - 1), token);
    }
  }
}

void check_batch(std::string_view operation, const DecoderOptions& options,
                 const TokenBatch& batch) {
  const Extents<2>& shape = batch.tokens.shape();
  if (shape[1] > options.context) {
    refuse(operation, "tokens", fmt::format("at most {} a sequence", options.context), shape[1]);
  }
  check_tokens(operation, "tokens", batch.tokens, 0, options.vocabulary);
  if (batch.keep && batch.keep->shape() != shape) {
    refuse(operation, "keep", to_string(shape), to_string(batch.keep->shape()));
  }
}

/// Tokens in their order: each adds its row.
template <class T>
void embed_backward(const Tensor<Index, 2>& tokens, const Tensor<T, 3>& gradient,
                    DecoderParameters<T>& parameters) {
  const auto [batch, count, width] = gradient.shape();
  const T* row = gradient.data();
  for (Index b = 0; b < batch; ++b) {
    for (Index t = 0; t < count; ++t, row += width) {
      T* token = &parameters.token_embedding(tokens(b, t), 0);
      for (Index d = 0; d < width; ++d) token[d] += row[d];
      if (!parameters.position_embedding) continue;
      T* position = &(*parameters.position_embedding)(t, 0);
      for (Index d = 0; d < width; ++d) position[d] += row[d];
    }
  }
}

}  // namespace

template <class T>
std::vector<NamedParameter<const T>> DecoderGradients<T>::list(
    const DecoderOptions& options) const {
  return list_parameters(options, parameters);
}

template <class T>
Decoder<T>::Decoder(DecoderOptions options, std::uint64_t seed) : options_(std::move(options)) {
  check_options(options_);
  parameters_ = initial_parameters<T>(options_, seed);
}

template <class T>
std::vector<NamedParameter<const T>> Decoder<T>::parameters() const {
  return list_parameters(options_, parameters_);
}

template <class T>
Index Decoder<T>::parameter_count() const {
  Index count = 0;
  for (const auto& parameter : parameters()) count += static_cast<Index>(parameter.elements.size());
  return count;
}

template <class T>
void Decoder<T>::update(const std::function<void(std::span<const NamedParameter<T>>)>& change) {
  change(list_parameters(options_, parameters_));
  tie(options_, parameters_);
}

template <class T>
const AttentionChange& Decoder<T>::change(Index block) const noexcept {
  return change_of(options_, block);
}

template <class T>
DecoderResult<T> Decoder<T>::forward(const TokenBatch& batch, ReturnWeights return_weights) const {
  check_batch("Decoder::forward", options_, batch);
  DecoderResult<T> result;
  Tensor<T, 3> x = embed(parameters_, batch.tokens, 0);
  for (Index i = 0; i < options_.layers; ++i) {
    auto [output, block] =
        run_block(block_options(options_, i), parameters_.blocks[static_cast<std::size_t>(i)],
                  std::move(x), batch.keep, return_weights);
    x = std::move(output);
    result.blocks.push_back(std::move(block));
  }
  result.normed = norm(x, parameters_.final_norm, options_.norm_epsilon);
  result.last = std::move(x);
  result.logits = Tensor<T, 3>::uninitialized(
      {batch.tokens.shape(0), batch.tokens.shape(1), options_.vocabulary});
  project(std::as_const(result.normed).view(), head_of(parameters_), std::optional<Tensor<T, 1>>(),
          result.logits);
  return result;
}

template <class T>
DecoderGradients<T> Decoder<T>::backward(const TokenBatch& batch, const DecoderResult<T>& result,
                                         const Tensor<T, 3>& logits_gradient) const {
  constexpr std::string_view kOperation = "Decoder::backward";
  check_batch(kOperation, options_, batch);
  if (logits_gradient.shape() != result.logits.shape()) {
    refuse(kOperation, "logits_gradient", to_string(result.logits.shape()),
           to_string(logits_gradient.shape()));
  }
  DecoderGradients<T> gradients;
  DecoderParameters<T>& dp = gradients.parameters;
  Tensor<T, 2> head = weight_gradient<T>(logits_gradient.view(), result.normed.view());
  if (parameters_.head) {
    dp.head = std::move(head);
    dp.token_embedding = Tensor<T, 2>(parameters_.token_embedding.shape());
  } else {
    dp.token_embedding = std::move(head);
  }
  Tensor<T, 3> normed(result.normed.shape());
  add_input_gradient<T>(logits_gradient.view(), head_of(parameters_), normed);
  Tensor<T, 3>& x = gradients.input;
  x = Tensor<T, 3>(normed.shape());
  dp.final_norm =
      norm_backward(result.last, parameters_.final_norm, options_.norm_epsilon, normed, x);
  dp.blocks.resize(parameters_.blocks.size());
  for (std::size_t i = dp.blocks.size(); i-- > 0;) {
    dp.blocks[i] = run_block_backward(block_options(options_, static_cast<Index>(i)),
                                      parameters_.blocks[i], batch.keep, result.blocks[i], x)
                       .parameters;
  }
  if (parameters_.position_embedding) {
    dp.position_embedding.emplace(parameters_.position_embedding->shape());
  }
  embed_backward(batch.tokens, x, dp);
  return gradients;
}

template struct DecoderGradients<double>;
template struct DecoderGradients<float>;
template class Decoder<double>;
template class Decoder<float>;

}  // namespace qkv
