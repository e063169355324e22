#include "explain/variant_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>

namespace qkv::explain {
namespace {

void expect_below(std::string_view argument, Index value, Index count) {
  if (value >= 0 && value < count) return;
  throw std::invalid_argument(
      fmt::format("explain: {}: expected 0 to {}, got {}", argument, count - 1, value));
}

void expect_tokens(std::string_view argument, std::span<const Index> tokens, Index count) {
  for (const Index token : tokens) expect_below(argument, token, count);
}

void check(const Variant& variant, const ModelSizes& sizes) {
  const Intervention& what = variant.intervention;
  expect_tokens("removed_tokens", what.removed_tokens, sizes.tokens);
  expect_tokens("hidden_keys", what.hidden_keys, sizes.tokens);
  expect_tokens("zeroed_values", what.zeroed_values, sizes.tokens);
  if (what.layer) expect_below("layer", *what.layer, sizes.layers);
  for (const HeadPlace& place : what.heads) {
    expect_below("heads.layer", place.layer, sizes.layers);
    expect_below("heads.head", place.head, sizes.heads);
  }
  for (const PartPlace& place : what.parts) expect_below("parts.layer", place.layer, sizes.layers);
}

bool contains(std::span<const Index> values, Index value) {
  return std::ranges::find(values, value) != values.end();
}

std::vector<Index> kept_tokens(const ExplainedText& text, const Intervention& what) {
  std::vector<Index> kept;
  for (std::size_t t = 0; t < text.tokens.size(); ++t) {
    const auto token = static_cast<Index>(t);
    if (!contains(what.removed_tokens, token)) {
      kept.push_back(token);
    } else if (text.readout[t] == 1) {
      throw std::invalid_argument(fmt::format(
          "explain: removed_tokens: expected none that the target reads alone, got {}", token));
    }
  }
  if (kept.empty()) {
    throw std::invalid_argument("explain: removed_tokens: expected one that stays, got all");
  }
  return kept;
}

/// [T,W] of one sample and head.
void set_to_zero(const TensorView<double, 4>& values, Index n, Index head) {
  for (Index t = 0; t < values.shape(2); ++t) {
    for (Index d = 0; d < values.shape(3); ++d) values(n, head, t, d) = 0;
  }
}

bool edits(const Intervention& what, Index layer) {
  const auto here = [&](const auto& place) { return place.layer == layer; };
  return (!what.zeroed_values.empty() && what.layer.value_or(layer) == layer) ||
         std::ranges::any_of(what.heads, here) || std::ranges::any_of(what.parts, here);
}

}  // namespace

VariantBatch::VariantBatch(const ExplainedModel& model, std::span<const Variant> variants)
    : variants_(variants) {
  const ModelSizes& sizes = model.sizes();
  for (const Variant& variant : variants) {
    check(variant, sizes);
    kept_.push_back(kept_tokens(model.text(), variant.intervention));
    const auto count = static_cast<Index>(kept_.back().size());
    const Extents<2> shape{count, sizes.width};
    if (variant.embeddings && variant.embeddings->shape() != shape) {
      throw std::invalid_argument(fmt::format("explain: embeddings: expected {}, got {}",
                                              to_string(shape),
                                              to_string(variant.embeddings->shape())));
    }
    tokens_ = std::max(tokens_, count);
    auto& places = places_.emplace_back(static_cast<std::size_t>(sizes.tokens));
    for (Index i = 0; i < count; ++i) {
      places[static_cast<std::size_t>(kept_.back()[static_cast<std::size_t>(i)])] = i;
    }
  }
}

bool VariantBatch::hides_here(Index n, Index layer) const {
  return variant(n).intervention.layer.value_or(layer) == layer;
}

std::optional<Index> VariantBatch::place(Index n, Index token) const {
  return places_[static_cast<std::size_t>(n)][static_cast<std::size_t>(token)];
}

std::optional<Tensor<bool, 2>> VariantBatch::keep(Index layer) const {
  Tensor<bool, 2> keep({size(), tokens_});
  for (Index n = 0; n < size(); ++n) {
    std::fill_n(&keep(n, 0), kept(n).size(), true);
    if (!hides_here(n, layer)) continue;
    for (const Index token : variant(n).intervention.hidden_keys) {
      if (const auto at = place(n, token)) keep(n, *at) = false;
    }
  }
  if (std::ranges::find(keep.elements(), false) == keep.elements().end()) return std::nullopt;
  return keep;
}

BlockEdit<double> VariantBatch::edit(Index layer) const {
  if (std::ranges::none_of(
          variants_, [&](const Variant& variant) { return edits(variant.intervention, layer); })) {
    return {};
  }
  return [this, layer](BlockSite site, const TensorView<double, 4>& values) {
    switch (site) {
      case BlockSite::Value:
        return zero_values(layer, values);
      case BlockSite::Context:
        return zero_heads(layer, values);
      case BlockSite::AttentionOutput:
        return zero_part(layer, Part::Attention, values);
      case BlockSite::AttentionResidual:
        return zero_part(layer, Part::AttentionSkip, values);
      case BlockSite::MlpOutput:
        return zero_part(layer, Part::Mlp, values);
      case BlockSite::MlpResidual:
        return zero_part(layer, Part::MlpSkip, values);
    }
  };
}

void VariantBatch::zero_values(Index layer, const TensorView<double, 4>& values) const {
  for (Index n = 0; n < size(); ++n) {
    if (!hides_here(n, layer)) continue;
    for (const Index token : variant(n).intervention.zeroed_values) {
      const auto at = place(n, token);
      if (!at) continue;
      for (Index h = 0; h < values.shape(1); ++h) {
        for (Index d = 0; d < values.shape(3); ++d) values(n, h, *at, d) = 0;
      }
    }
  }
}

void VariantBatch::zero_heads(Index layer, const TensorView<double, 4>& context) const {
  for (Index n = 0; n < size(); ++n) {
    for (const HeadPlace& head : variant(n).intervention.heads) {
      if (head.layer == layer) set_to_zero(context, n, head.head);
    }
  }
}

void VariantBatch::zero_part(Index layer, Part part, const TensorView<double, 4>& states) const {
  for (Index n = 0; n < size(); ++n) {
    for (const PartPlace& cut : variant(n).intervention.parts) {
      if (cut.layer == layer && cut.part == part) set_to_zero(states, n, 0);
    }
  }
}

}  // namespace qkv::explain
