#include "model/encoder.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <utility>

#include "model/encoder_parameters.h"
#include "model/norm.h"
#include "model/packed_encoder.h"

namespace qkv {
namespace {

[[noreturn]] void refuse(std::string_view operation, std::string_view argument,
                         std::string_view expected, std::string_view got) {
  throw std::invalid_argument(
      fmt::format("{}: {}: expected {}, got {}", operation, argument, expected, got));
}

void check_keep(std::string_view operation, const std::optional<Tensor<bool, 2>>& keep,
                const Extents<2>& shape) {
  if (keep && keep->shape() != shape) {
    refuse(operation, "keep", to_string(shape), to_string(keep->shape()));
  }
}

void check_length(std::string_view operation, const EncoderOptions& options, Index tokens) {
  if (tokens > options.context) {
    refuse(operation, "tokens", fmt::format("at most {} a sequence", options.context),
           fmt::format("{}", tokens));
  }
}

void check_tokens(std::string_view operation, const EncoderOptions& options,
                  const Tensor<Index, 2>& tokens) {
  check_length(operation, options, tokens.shape(1));
  for (const Index token : tokens.elements()) {
    if (token < 0 || token >= options.vocabulary) {
      refuse(operation, "tokens", fmt::format("0 to {}", options.vocabulary - 1),
             fmt::format("{}", token));
    }
  }
}

template <class T>
void check_embedding(std::string_view operation, const EncoderOptions& options,
                     const EmbeddedBatch<T>& batch) {
  const Extents<3>& shape = batch.embedding.shape();
  if (shape[2] != options.model_width) {
    refuse(operation, "embedding", fmt::format("{} columns", options.model_width),
           to_string(shape));
  }
  check_length(operation, options, shape[1]);
  check_keep(operation, batch.keep, {shape[0], shape[1]});
}

template <class T>
void add_row(const T* row, Index width, T* target) {
  for (Index d = 0; d < width; ++d) target[d] += row[d];
}

template <class Parameters>
auto list(const EncoderOptions& options, Parameters& parameters) {
  using Element = std::remove_pointer_t<decltype(parameters.token_embedding.data())>;
  std::vector<NamedParameter<Element>> result;
  visit_parameters(options, parameters, [&](std::string name, auto& tensor, const auto&) {
    result.push_back(
        {std::move(name), {tensor.shape().begin(), tensor.shape().end()}, tensor.elements()});
  });
  return result;
}

}  // namespace

BlockOptions block_options(const EncoderOptions& options) {
  const MultiHeadAttentionOptions module{.model_width = options.model_width,
                                         .heads = options.heads,
                                         .biases = ProjectionBiases::all()};
  return {.attention = {.module = module, .change = {.mask = Mask()}},
          .norm_epsilon = options.norm_epsilon,
          .norms = NormPlacement::After};
}

void check_options(const EncoderOptions& options) {
  const auto positive = [](std::string_view name, Index value) {
    if (value < 1) refuse("Encoder", name, "1 or more", fmt::format("{}", value));
  };
  positive("vocabulary", options.vocabulary);
  positive("context", options.context);
  positive("token_types", options.token_types);
  positive("model_width", options.model_width);
  positive("layers", options.layers);
  positive("heads", options.heads);
  positive("mlp_width", options.mlp_width);
  if (options.model_width % options.heads != 0) {
    refuse("Encoder", "heads", fmt::format("a divisor of {}", options.model_width),
           fmt::format("{}", options.heads));
  }
  if (!(std::isfinite(options.norm_epsilon) && options.norm_epsilon > 0)) {
    refuse("Encoder", "norm_epsilon", "a positive number", fmt::format("{}", options.norm_epsilon));
  }
}

template <class T>
std::vector<NamedParameter<const T>> EncoderGradients<T>::list(
    const EncoderOptions& options) const {
  return qkv::list(options, parameters);
}

template <class T>
Encoder<T>::Encoder(const EncoderOptions& options, EncoderParameters<T> parameters)
    : options_(options), parameters_(std::move(parameters)) {
  check_options(options_);
  if (parameters_.blocks.size() != static_cast<std::size_t>(options_.layers)) {
    refuse("Encoder", "blocks", fmt::format("{}", options_.layers),
           fmt::format("{}", parameters_.blocks.size()));
  }
  visit_parameters(options_, parameters_,
                   [](const std::string& name, const auto& tensor, const auto& shape) {
                     if (tensor.shape() != shape) {
                       refuse("Encoder", name, to_string(shape), to_string(tensor.shape()));
                     }
                   });
}

template <class T>
std::vector<NamedParameter<const T>> Encoder<T>::parameters() const {
  return qkv::list(options_, parameters_);
}

template <class T>
Tensor<T, 3> Encoder<T>::embed(const Tensor<Index, 2>& tokens) const {
  check_tokens("Encoder::embed", options_, tokens);
  const Index width = options_.model_width;
  auto result = Tensor<T, 3>::uninitialized({tokens.shape(0), tokens.shape(1), width});
#pragma omp parallel for schedule(static)
  for (Index b = 0; b < tokens.shape(0); ++b) {
    for (Index t = 0; t < tokens.shape(1); ++t) {
      T* row = &result(b, t, 0);
      std::copy_n(&parameters_.token_embedding(tokens(b, t), 0), width, row);
      add_row(parameters_.type_embedding.data(), width, row);
      add_row(&parameters_.position_embedding(t, 0), width, row);
    }
  }
  return result;
}

template <class T>
Tensor<T, 3> Encoder<T>::encode(const EncoderBatch& batch) const {
  check_keep("Encoder::encode", batch.keep, batch.tokens.shape());
  return encode_packed(options_, parameters_, embed(batch.tokens), batch.keep);
}

template <class T>
EncoderResult<T> Encoder<T>::run(Tensor<T, 3> embedding, const std::optional<Tensor<bool, 2>>& keep,
                                 ReturnWeights return_weights, const EncoderEdit<T>& edit) const {
  const BlockOptions options = block_options(options_);
  EncoderResult<T> result;
  result.embedding = std::move(embedding);
  Tensor<T, 3> x = norm(result.embedding, parameters_.embedding_norm, options_.norm_epsilon);
  for (Index i = 0; i < options_.layers; ++i) {
    BlockEdit<T> block_edit;
    if (edit) {
      block_edit = [&edit, i](BlockSite site, const TensorView<T, 4>& values) {
        edit(i, site, values);
      };
    }
    auto [output, block] = run_block(options, parameters_.blocks[static_cast<std::size_t>(i)],
                                     std::move(x), keep, return_weights, block_edit);
    x = std::move(output);
    result.blocks.push_back(std::move(block));
  }
  result.output = std::move(x);
  return result;
}

template <class T>
EncoderResult<T> Encoder<T>::forward(const EncoderBatch& batch,
                                     ReturnWeights return_weights) const {
  check_keep("Encoder::forward", batch.keep, batch.tokens.shape());
  return run(embed(batch.tokens), batch.keep, return_weights, {});
}

template <class T>
EncoderResult<T> Encoder<T>::forward(const EmbeddedBatch<T>& batch, ReturnWeights return_weights,
                                     const EncoderEdit<T>& edit) const {
  check_embedding("Encoder::forward", options_, batch);
  return run(batch.embedding, batch.keep, return_weights, edit);
}

template <class T>
EncoderGradients<T> Encoder<T>::run_backward(const std::optional<Tensor<bool, 2>>& keep,
                                             const EncoderResult<T>& result,
                                             const Tensor<T, 3>& output_gradient) const {
  if (output_gradient.shape() != result.output.shape()) {
    refuse("Encoder::backward", "output_gradient", to_string(result.output.shape()),
           to_string(output_gradient.shape()));
  }
  const BlockOptions options = block_options(options_);
  EncoderGradients<T> gradients;
  EncoderParameters<T>& dp = gradients.parameters;
  dp.blocks.resize(parameters_.blocks.size());
  gradients.attention_output.resize(parameters_.blocks.size());
  Tensor<T, 3> x = output_gradient;
  for (std::size_t i = dp.blocks.size(); i-- > 0;) {
    BlockGradients<T> block =
        run_block_backward(options, parameters_.blocks[i], keep, result.blocks[i], x);
    dp.blocks[i] = std::move(block.parameters);
    gradients.attention_output[i] = std::move(block.attention_output);
  }
  gradients.embedding = Tensor<T, 3>(x.shape());
  dp.embedding_norm = norm_backward(result.embedding, parameters_.embedding_norm,
                                    options_.norm_epsilon, x, gradients.embedding);
  return gradients;
}

template <class T>
EncoderGradients<T> Encoder<T>::backward(const EmbeddedBatch<T>& batch,
                                         const EncoderResult<T>& result,
                                         const Tensor<T, 3>& output_gradient) const {
  check_embedding("Encoder::backward", options_, batch);
  return run_backward(batch.keep, result, output_gradient);
}

template <class T>
EncoderGradients<T> Encoder<T>::backward(const EncoderBatch& batch, const EncoderResult<T>& result,
                                         const Tensor<T, 3>& output_gradient) const {
  check_tokens("Encoder::backward", options_, batch.tokens);
  check_keep("Encoder::backward", batch.keep, batch.tokens.shape());
  EncoderGradients<T> gradients = run_backward(batch.keep, result, output_gradient);
  EncoderParameters<T>& dp = gradients.parameters;
  dp.token_embedding = Tensor<T, 2>(parameters_.token_embedding.shape());
  dp.position_embedding = Tensor<T, 2>(parameters_.position_embedding.shape());
  dp.type_embedding = Tensor<T, 2>(parameters_.type_embedding.shape());
  const Index width = options_.model_width;
  const T* row = gradients.embedding.data();
  for (Index b = 0; b < batch.tokens.shape(0); ++b) {
    for (Index t = 0; t < batch.tokens.shape(1); ++t, row += width) {
      add_row(row, width, &dp.token_embedding(batch.tokens(b, t), 0));
      add_row(row, width, &dp.position_embedding(t, 0));
      add_row(row, width, dp.type_embedding.data());
    }
  }
  return gradients;
}

template struct EncoderGradients<double>;
template struct EncoderGradients<float>;
template class Encoder<double>;
template class Encoder<float>;

}  // namespace qkv
