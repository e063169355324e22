#include "explain/decoder_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "explain/shuffle.h"
#include "model/decoder_parts.h"
#include "module/projection.h"

namespace qkv::explain {

namespace {

template <class Got>
[[noreturn]] void refuse(std::string_view argument, const std::string& expected, const Got& got) {
  throw std::invalid_argument(
      fmt::format("explain: {}: expected {}, got {}", argument, expected, got));
}

void expect_token(std::string_view argument, Index token, Index vocabulary) {
  if (token < 0 || token >= vocabulary) {
    refuse(argument, fmt::format("0 to {}", vocabulary - 1), token);
  }
}

/// log Σ exp.
double log_sum_exp(std::span<const double> logits) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum);
}

Tensor<double, 2> mean_embedding(const DecoderParameters<double>& parameters, Index tokens) {
  const auto [vocabulary, width] = parameters.token_embedding.shape();
  Tensor<double, 2> baseline({tokens, width});
  for (Index d = 0; d < width; ++d) {
    double sum = 0;
    for (Index v = 0; v < vocabulary; ++v) sum += parameters.token_embedding(v, d);
    for (Index t = 0; t < tokens; ++t) {
      baseline(t, d) = sum / static_cast<double>(vocabulary);
      if (parameters.position_embedding) baseline(t, d) += (*parameters.position_embedding)(t, d);
    }
  }
  return baseline;
}

}  // namespace

Decoder<double> in_float64(const Decoder<float>& decoder) {
  Decoder<double> result(decoder.options(), 0);
  const auto from = decoder.parameters();
  result.update([&](std::span<const NamedParameter<double>> to) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      std::ranges::copy(from[i].elements, to[i].elements.begin());
    }
  });
  return result;
}

DecoderModel::DecoderModel(std::shared_ptr<const Decoder<double>> decoder, DecoderText text,
                           DecoderTarget target)
    : decoder_(std::move(decoder)), given_(std::move(text)), target_(target) {
  const DecoderOptions& options = decoder_->options();
  const std::size_t count = given_.tokens.size();
  if (count < 1 || static_cast<Index>(count) > options.context) {
    refuse("text", fmt::format("1 to {} tokens", options.context), count);
  }
  for (const Index token : given_.tokens) expect_token("text", token, options.vocabulary);
  if (!given_.names.empty() && static_cast<Index>(given_.names.size()) != options.vocabulary) {
    refuse("names", fmt::format("none or {}", options.vocabulary), given_.names.size());
  }
  for (const std::vector<Index>& other : given_.alternatives) {
    if (other.size() != count)
      refuse("alternatives", fmt::format("{} tokens", count), other.size());
    for (const Index token : other) expect_token("alternatives", token, options.vocabulary);
  }
  expect_token("target.token", target_.token, options.vocabulary);
  if (target_.against) expect_token("target.against", *target_.against, options.vocabulary);
  sizes_ = {static_cast<Index>(count), options.layers, options.heads, options.model_width};
  std::vector<BlockStack::Layer> layers;
  for (Index i = 0; i < options.layers; ++i) {
    layers.push_back(
        {block_options(options, i), &decoder_->tensors().blocks[static_cast<std::size_t>(i)]});
  }
  blocks_ = BlockStack(std::move(layers));
  BlockAttentionOptions meant = block_options(options, 0).attention;
  meant.change.bug = std::nullopt;
  intended_ = position_rules(meant).bind("explain", {1, 1, sizes_.tokens, sizes_.tokens});
  set_text();
}

void DecoderModel::set_text() {
  const std::size_t count = given_.tokens.size();
  const auto name = [&](Index token) {
    return given_.names.empty() ? fmt::format("{}", token)
                                : given_.names[static_cast<std::size_t>(token)];
  };
  for (const Index token : given_.tokens) text_.tokens.push_back(name(token));
  text_.special.assign(count, false);
  text_.readout.assign(count, 0);
  text_.readout.back() = 1;
  const auto embedded = [&](const std::vector<Index>& list) {
    Tensor<Index, 2> tokens({1, sizes_.tokens});
    std::ranges::copy(list, tokens.data());
    return first_of(embed(decoder_->tensors(), tokens, 0));
  };
  text_.embeddings = embedded(given_.tokens);
  for (const std::vector<Index>& other : given_.alternatives) {
    text_.alternatives.push_back(embedded(other));
  }
  text_.baseline = mean_embedding(decoder_->tensors(), sizes_.tokens);
  const bool logit = target_.kind == DecoderTarget::Kind::Logit;
  text_.target.english =
      fmt::format("{} of \"{}\"", logit ? "logit" : "log-probability", name(target_.token));
  text_.target.chinese =
      fmt::format("“{}”的{}", name(target_.token), logit ? " logit" : "对数概率");
  if (target_.against) {
    text_.target.english += fmt::format(" minus that of \"{}\"", name(*target_.against));
    text_.target.chinese += fmt::format("减去“{}”的", name(*target_.against));
  }
}

bool DecoderModel::may_see(Index query, Index key) const {
  return intended_.visible(0, 0, query, key);
}

Tensor<double, 3> DecoderModel::embeddings_of(const VariantBatch& batch) const {
  Tensor<double, 3> x({batch.size(), batch.tokens(), sizes_.width});
  for (Index n = 0; n < batch.size(); ++n) {
    const auto kept = batch.kept(n);
    const Variant& variant = batch.variant(n);
    if (variant.embeddings) {
      std::ranges::copy(variant.embeddings->elements(), &x(n, 0, 0));
      continue;
    }
    Tensor<Index, 2> tokens({1, static_cast<Index>(kept.size())});
    std::ranges::transform(kept, tokens.data(),
                           [&](Index t) { return given_.tokens[static_cast<std::size_t>(t)]; });
    const Tensor<double, 3> own = embed(decoder_->tensors(), tokens, 0);
    std::ranges::copy(own.elements(), &x(n, 0, 0));
  }
  return x;
}

std::vector<double> DecoderModel::targets(const Tensor<double, 3>& last,
                                          Tensor<double, 3>* gradient) const {
  const DecoderParameters<double>& parameters = decoder_->tensors();
  const double epsilon = decoder_->options().norm_epsilon;
  const Tensor<double, 3> normed = norm(last, parameters.final_norm, epsilon);
  const Index vocabulary = decoder_->options().vocabulary;
  auto logits = Tensor<double, 3>::uninitialized({last.shape(0), 1, vocabulary});
  project(normed.view(), head_of(parameters), std::optional<Tensor<double, 1>>(), logits);

  std::vector<double> targets;
  Tensor<double, 3> slopes(logits.shape());
  for (Index n = 0; n < last.shape(0); ++n) {
    const std::span<const double> row(&logits(n, 0, 0), static_cast<std::size_t>(vocabulary));
    double target = logits(n, 0, target_.token);
    slopes(n, 0, target_.token) += 1;
    if (target_.against) {
      target -= logits(n, 0, *target_.against);
      slopes(n, 0, *target_.against) -= 1;
    } else if (target_.kind == DecoderTarget::Kind::LogProbability) {
      const double sum = log_sum_exp(row);
      target -= sum;
      for (Index v = 0; v < vocabulary; ++v) {
        slopes(n, 0, v) -= std::exp(logits(n, 0, v) - sum);
      }
    }
    targets.push_back(target);
  }
  if (gradient != nullptr) {
    Tensor<double, 3> of_normed(normed.shape());
    add_input_gradient<double>(std::as_const(slopes).view(), head_of(parameters), of_normed);
    *gradient = Tensor<double, 3>(last.shape());
    norm_backward(last, parameters.final_norm, epsilon, of_normed, *gradient);
  }
  return targets;
}

std::vector<double> DecoderModel::run(std::span<const Variant> variants) const {
  if (variants.empty()) return {};
  const VariantBatch batch(*this, variants);
  const Tensor<double, 3> last = blocks_.run(batch, embeddings_of(batch));
  auto rows = Tensor<double, 3>::uninitialized({batch.size(), 1, sizes_.width});
  for (Index n = 0; n < batch.size(); ++n) {
    const auto count = static_cast<Index>(batch.kept(n).size());
    std::copy_n(&last(n, count - 1, 0), sizes_.width, &rows(n, 0, 0));
  }
  return targets(rows, nullptr);
}

Records DecoderModel::record() const {
  const std::vector<Variant> plain(1);
  return blocks_.records(blocks_.run_plain(embeddings_of(VariantBatch(*this, plain))));
}

Gradients DecoderModel::differentiate(const Tensor<double, 3>& embeddings) const {
  expect_embeddings(embeddings, sizes_);
  const Extents<3>& shape = embeddings.shape();
  const BlockStack::PlainRun run = blocks_.run_plain(embeddings);
  const Tensor<double, 3> rows =
      contiguous_copy(run.last.view().slice(1, sizes_.tokens - 1, sizes_.tokens));
  Gradients gradients;
  Tensor<double, 3> of_rows;
  gradients.targets = targets(rows, &of_rows);
  gradients.embeddings = Tensor<double, 3>(shape);
  for (Index n = 0; n < shape[0]; ++n) {
    std::copy_n(&of_rows(n, 0, 0), sizes_.width, &gradients.embeddings(n, sizes_.tokens - 1, 0));
  }
  gradients.weights = blocks_.backward(run, gradients.embeddings);
  return gradients;
}

std::unique_ptr<ExplainedModel> DecoderModel::with_shuffled_layers(Index layers,
                                                                   std::uint64_t seed) const {
  expect_layers(layers, sizes_);
  std::vector<std::string> prefixes = {"final_norm.", "head."};
  for (Index i = sizes_.layers - layers; i < sizes_.layers; ++i) {
    prefixes.push_back(fmt::format("blocks.{}.", i));
  }
  Random random(seed);
  auto shuffled = std::make_shared<Decoder<double>>(*decoder_);
  shuffled->update([&](std::span<const NamedParameter<double>> parameters) {
    for (const auto& parameter : parameters) {
      if (std::ranges::any_of(prefixes, [&](const std::string& prefix) {
            return parameter.name.starts_with(prefix);
          })) {
        shuffle(parameter.elements, random);
      }
    }
  });
  return std::make_unique<DecoderModel>(std::move(shuffled), given_, target_);
}

}  // namespace qkv::explain
