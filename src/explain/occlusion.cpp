#include "explain/occlusion.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace qkv::explain {
namespace {

/// Tokens of a batch, all its variants together: enough for the products, little memory.
constexpr Index kBatchTokens = 2048;

/// Falls of the target, in the order of the variants.
std::vector<double> falls(const ExplainedModel& model, std::span<const Variant> variants,
                          const Progress& progress) {
  std::vector<double> result = run_all(model, variants, progress);
  const double plain = plain_target(model);
  for (double& target : result) target = plain - target;
  return result;
}

/// The text's embeddings with those of `others` in some places.
Tensor<double, 2> exchanged(const ExplainedText& text, const Tensor<double, 2>& others,
                            std::span<const Index> tokens) {
  Tensor<double, 2> embeddings = text.embeddings;
  const Index width = embeddings.shape(1);
  for (const Index token : tokens) {
    if (token < 0 || token >= embeddings.shape(0)) {
      throw std::invalid_argument(fmt::format("explain: replaced tokens: expected 0 to {}, got {}",
                                              embeddings.shape(0) - 1, token));
    }
    std::copy_n(&others(token, 0), width, &embeddings(token, 0));
  }
  return embeddings;
}

}  // namespace

std::string_view key_of(Occlusion how) {
  switch (how) {
    case Occlusion::HideKey:
      return "hide_key";
    case Occlusion::ZeroValue:
      return "zero_value";
    case Occlusion::RemoveToken:
      return "remove_token";
    case Occlusion::ReplaceToken:
      return "replace_token";
    case Occlusion::SwapToken:
      return "swap_token";
  }
  return "";
}

bool can_take_away(const ExplainedText& text, Occlusion how) {
  return how != Occlusion::SwapToken || !text.alternatives.empty();
}

Variant without(const ExplainedModel& model, Occlusion how, std::span<const Index> tokens,
                std::size_t alternative) {
  const ExplainedText& text = model.text();
  Variant variant;
  std::vector<Index> list(tokens.begin(), tokens.end());
  switch (how) {
    case Occlusion::HideKey:
      variant.intervention.hidden_keys = std::move(list);
      break;
    case Occlusion::ZeroValue:
      variant.intervention.zeroed_values = std::move(list);
      break;
    case Occlusion::RemoveToken:
      variant.intervention.removed_tokens = std::move(list);
      break;
    case Occlusion::ReplaceToken:
      if (!tokens.empty()) variant.embeddings = exchanged(text, text.baseline, tokens);
      break;
    case Occlusion::SwapToken:
      if (alternative >= text.alternatives.size()) {
        throw std::invalid_argument(
            fmt::format("explain: alternatives: expected more than {}, got {}", alternative,
                        text.alternatives.size()));
      }
      if (!tokens.empty()) {
        variant.embeddings = exchanged(text, text.alternatives[alternative], tokens);
      }
      break;
  }
  return variant;
}

std::vector<double> run_all(const ExplainedModel& model, std::span<const Variant> variants,
                            const Progress& progress) {
  const auto at_once =
      static_cast<std::size_t>(std::max<Index>(1, kBatchTokens / model.sizes().tokens));
  std::vector<double> targets;
  while (targets.size() < variants.size()) {
    const auto next = variants.subspan(targets.size());
    const auto some = model.run(next.first(std::min(at_once, next.size())));
    targets.insert(targets.end(), some.begin(), some.end());
    const double done = static_cast<double>(targets.size()) / static_cast<double>(variants.size());
    if (progress && !progress("interventions", done)) throw Interrupted();
  }
  return targets;
}

double plain_target(const ExplainedModel& model) {
  const std::array<Variant, 1> plain;
  return model.run(plain).front();
}

std::vector<double> occlusion(const ExplainedModel& model, Occlusion how,
                              const Progress& progress) {
  const ExplainedText& text = model.text();
  const std::size_t times = how == Occlusion::SwapToken ? text.alternatives.size() : 1;
  std::vector<Index> tokens;
  std::vector<Variant> variants;
  for (Index t = 0; t < model.sizes().tokens; ++t) {
    const bool read_alone = text.readout[static_cast<std::size_t>(t)] == 1;
    if (how == Occlusion::RemoveToken && (read_alone || model.sizes().tokens == 1)) continue;
    for (std::size_t i = 0; i < times; ++i) {
      tokens.push_back(t);
      variants.push_back(without(model, how, std::array{t}, i));
    }
  }
  const std::vector<double> fallen = falls(model, variants, progress);
  std::vector<double> scores(static_cast<std::size_t>(model.sizes().tokens), 0);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    scores[static_cast<std::size_t>(tokens[i])] += fallen[i] / static_cast<double>(times);
  }
  return scores;
}

Ablation ablation(const ExplainedModel& model, const Progress& progress) {
  const auto [count, layers, heads, width] = model.sizes();
  std::vector<Variant> variants;
  for (Index i = 0; i < layers; ++i) {
    for (Index h = 0; h < heads; ++h) variants.emplace_back().intervention.heads = {{i, h}};
  }
  const std::array<std::vector<Part>, 5> cuts = {std::vector<Part>{Part::Attention},
                                                 {Part::AttentionSkip},
                                                 {Part::Mlp},
                                                 {Part::MlpSkip},
                                                 {Part::Attention, Part::Mlp}};
  for (const std::vector<Part>& cut : cuts) {
    for (Index i = 0; i < layers; ++i) {
      Intervention& what = variants.emplace_back().intervention;
      for (const Part part : cut) what.parts.push_back({i, part});
    }
  }
  const std::vector<double> fallen = falls(model, variants, progress);
  Ablation result;
  result.heads = Tensor<double, 2>({layers, heads});
  auto next = fallen.begin() + layers * heads;
  std::copy(fallen.begin(), next, result.heads.data());
  for (auto* list :
       {&result.attention, &result.attention_skip, &result.mlp, &result.mlp_skip, &result.layers}) {
    list->assign(next, next + layers);
    next += layers;
  }
  return result;
}

}  // namespace qkv::explain
