#include "explain/encoder_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "explain/shuffle.h"
#include "model/utf8.h"

namespace qkv::explain {
namespace {

/// Of a text in the target's name.
constexpr std::size_t kNameLength = 80;

/// Which places of a batch are tokens; absent where all are.
std::optional<Tensor<bool, 2>> kept_places(const VariantBatch& batch) {
  Tensor<bool, 2> keep({batch.size(), batch.tokens()});
  bool all = true;
  for (Index n = 0; n < batch.size(); ++n) {
    const auto count = static_cast<Index>(batch.kept(n).size());
    for (Index t = 0; t < count; ++t) keep(n, t) = true;
    all = all && count == batch.tokens();
  }
  if (all) return std::nullopt;
  return keep;
}

PoolingOptions to_length_one(PoolingOptions options) {
  options.normalize = true;
  return options;
}

std::vector<double> unit_vector(const SentenceModel<double>& model, const std::string& text) {
  const EncoderBatch batch = model.batch_of(model.tokenize({&text, 1}));
  const PooledTokens<double> pooled =
      pool(to_length_one(model.options.pooling), model.encoder.forward(batch).output, batch.keep);
  return {pooled.vectors.elements().begin(), pooled.vectors.elements().end()};
}

void shuffle_block(BlockParameters<double>& block, Random& random) {
  auto& p = block.attention.projections;
  for (Tensor<double, 2>* weight :
       {&p.query_weight, &p.key_weight, &p.value_weight, &p.output_weight}) {
    shuffle(weight->elements(), random);
  }
  for (auto* bias : {&p.query_bias, &p.key_bias, &p.value_bias, &p.output_bias}) {
    if (*bias) shuffle((*bias)->elements(), random);
  }
  if (!block.mlp) return;
  shuffle(block.mlp->in_weight.elements(), random);
  shuffle(block.mlp->in_bias.elements(), random);
  shuffle(block.mlp->out_weight.elements(), random);
  shuffle(block.mlp->out_bias.elements(), random);
}

}  // namespace

EncoderModel::EncoderModel(std::shared_ptr<const SentenceModel<double>> model, std::string text,
                           SimilarityTarget target)
    : model_(std::move(model)), target_(std::move(target)) {
  const std::vector<std::string> texts = {std::move(text)};
  const std::vector<TokenizedText> tokenized = model_->tokenize(texts);
  for (const TextToken& token : tokenized.front().tokens) tokens_.push_back(token.id);
  const EncoderOptions& options = model_->encoder.options();
  sizes_ = {static_cast<Index>(tokens_.size()), options.layers, options.heads, options.model_width};
  set_blocks();
  set_text(tokenized.front().tokens);
  set_direction();
}

EncoderModel::EncoderModel(const EncoderModel& other,
                           std::shared_ptr<const SentenceModel<double>> model)
    : model_(std::move(model)),
      target_(other.target_),
      tokens_(other.tokens_),
      sizes_(other.sizes_),
      text_(other.text_) {
  set_blocks();
  set_direction();
}

void EncoderModel::set_blocks() {
  const BlockOptions options = block_options(model_->encoder.options());
  std::vector<BlockStack::Layer> layers;
  for (const BlockParameters<double>& block : model_->encoder.tensors().blocks) {
    layers.push_back({options, &block});
  }
  blocks_ = BlockStack(std::move(layers));
}

void EncoderModel::set_direction() {
  direction_ = unit_vector(*model_, target_.to);
  if (!target_.against) return;
  const std::vector<double> other = unit_vector(*model_, *target_.against);
  std::ranges::transform(direction_, other, direction_.begin(), std::minus());
}

Tensor<double, 3> EncoderModel::embedded(const std::vector<Index>& tokens) const {
  Tensor<Index, 2> row({1, static_cast<Index>(tokens.size())});
  std::ranges::copy(tokens, row.data());
  return norm(model_->encoder.embed(row), model_->encoder.tensors().embedding_norm,
              model_->encoder.options().norm_epsilon);
}

void EncoderModel::set_text(const std::vector<TextToken>& tokens) {
  const WordPiece& tokenizer = model_->tokenizer;
  const auto mask = tokenizer.find(tokenizer.options().mask);
  std::vector<Index> without = tokens_;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    text_.tokens.push_back(tokens[t].text);
    text_.special.push_back(tokens[t].special);
    if (!tokens[t].special) without[t] = mask.value_or(tokenizer.padding());
  }
  const bool mean = model_->options.pooling.pooling == Pooling::Mean;
  text_.readout.assign(tokens.size(), mean ? 1 / static_cast<double>(tokens.size()) : 0);
  if (!mean) text_.readout.front() = 1;
  text_.embeddings = first_of(embedded(tokens_));
  text_.baseline = first_of(embedded(without));
  const std::string to = shortened(target_.to, kNameLength);
  text_.target = {fmt::format("similarity (cosine) to \"{}\"", to),
                  fmt::format("与“{}”的相似度（余弦）", to)};
  if (!target_.against) return;
  text_.target.english +=
      fmt::format(" minus that to \"{}\"", shortened(*target_.against, kNameLength));
  text_.target.chinese +=
      fmt::format("减去与“{}”的相似度", shortened(*target_.against, kNameLength));
}

Tensor<double, 3> EncoderModel::embeddings_of(const VariantBatch& batch) const {
  Tensor<double, 3> x({batch.size(), batch.tokens(), sizes_.width});
  for (Index n = 0; n < batch.size(); ++n) {
    if (const auto& given = batch.variant(n).embeddings) {
      std::ranges::copy(given->elements(), &x(n, 0, 0));
      continue;
    }
    std::vector<Index> tokens;
    for (const Index t : batch.kept(n)) tokens.push_back(tokens_[static_cast<std::size_t>(t)]);
    const Tensor<double, 3> own = embedded(tokens);
    std::ranges::copy(own.elements(), &x(n, 0, 0));
  }
  return x;
}

std::vector<double> EncoderModel::targets(const Tensor<double, 3>& states,
                                          const std::optional<Tensor<bool, 2>>& keep,
                                          Tensor<double, 3>* gradient) const {
  const PoolingOptions options = to_length_one(model_->options.pooling);
  const PooledTokens<double> pooled = pool(options, states, keep);
  std::vector<double> targets;
  Tensor<double, 2> slopes(pooled.vectors.shape());
  for (Index n = 0; n < states.shape(0); ++n) {
    double cosine = 0;
    for (Index d = 0; d < sizes_.width; ++d) {
      const double along = direction_[static_cast<std::size_t>(d)];
      cosine += pooled.vectors(n, d) * along;
      slopes(n, d) = along;
    }
    targets.push_back(cosine);
  }
  if (gradient != nullptr) {
    *gradient = pool_backward(options, keep, pooled, slopes, states.shape(1));
  }
  return targets;
}

std::vector<double> EncoderModel::run(std::span<const Variant> variants) const {
  if (variants.empty()) return {};
  const VariantBatch batch(*this, variants);
  return targets(blocks_.run(batch, embeddings_of(batch)), kept_places(batch), nullptr);
}

Records EncoderModel::record() const {
  return blocks_.records(blocks_.run_plain(embedded(tokens_)));
}

Gradients EncoderModel::differentiate(const Tensor<double, 3>& embeddings) const {
  expect_embeddings(embeddings, sizes_);
  const BlockStack::PlainRun run = blocks_.run_plain(embeddings);
  Gradients gradients;
  gradients.targets = targets(run.last, std::nullopt, &gradients.embeddings);
  gradients.weights = blocks_.backward(run, gradients.embeddings);
  return gradients;
}

std::unique_ptr<ExplainedModel> EncoderModel::with_shuffled_layers(Index layers,
                                                                   std::uint64_t seed) const {
  expect_layers(layers, sizes_);
  Random random(seed);
  EncoderParameters<double> parameters = model_->encoder.tensors();
  for (Index i = sizes_.layers - layers; i < sizes_.layers; ++i) {
    shuffle_block(parameters.blocks[static_cast<std::size_t>(i)], random);
  }
  auto shuffled = std::make_shared<SentenceModel<double>>(SentenceModel<double>{
      model_->tokenizer, Encoder<double>(model_->encoder.options(), std::move(parameters)),
      model_->options});
  return std::unique_ptr<ExplainedModel>(new EncoderModel(*this, std::move(shuffled)));
}

std::vector<double> similarities(const SentenceModel<double>& model, const std::string& text,
                                 std::span<const std::string> others) {
  const std::vector<double> own = unit_vector(model, text);
  std::vector<double> cosines;
  for (const std::string& other : others) {
    const std::vector<double> vector = unit_vector(model, other);
    cosines.push_back(std::inner_product(own.begin(), own.end(), vector.begin(), 0.0));
  }
  return cosines;
}

}  // namespace qkv::explain
