// Interventions: what the target becomes where tokens, heads, attentions, MLPs or skips are taken away.
#pragma once

#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "explain/explained_model.h"

namespace qkv::explain {

/// What taking a token away means.
enum class Occlusion : std::uint8_t {
  HideKey,  ///< masked in every layer, the others share its weight: attention cannot read that place
  ZeroValue,     ///< weights stay, it delivers nothing in any layer
  RemoveToken,   ///< the text without it
  ReplaceToken,  ///< the baseline's embedding in its place: the place stays, its token does not
  /// Another token in its place, as another text has it: unlike the baseline, something that the model knows. An interchange
  /// intervention: Geiger, Lu, Icard and Potts, "Causal Abstractions of Neural Networks" (2021).
  SwapToken,
};
inline constexpr std::array<Occlusion, 5> kOcclusions = {
    Occlusion::HideKey, Occlusion::ZeroValue, Occlusion::RemoveToken, Occlusion::ReplaceToken,
    Occlusion::SwapToken};

/// "hide_key".
std::string_view key_of(Occlusion how);

/// Whether the text has what it takes: alternatives, where tokens are swapped.
bool can_take_away(const ExplainedText& text, Occlusion how);

/// The run without these tokens; where they are swapped, with those of one of the alternatives. Throws std::invalid_argument where
/// there is none.
Variant without(const ExplainedModel& model, Occlusion how, std::span<const Index> tokens,
                std::size_t alternative = 0);

/// The targets of any number of variants, some at a time. Throws Interrupted where progress wants no more.
std::vector<double> run_all(const ExplainedModel& model, std::span<const Variant> variants,
                            const Progress& progress = {});

/// The target of the plain run.
double plain_target(const ExplainedModel& model);

/// By how much the target falls without each token [T], the mean over all alternatives where tokens are swapped. 0 for a token that the target reads alone where it would be removed, for then
/// there is no target. ReplaceToken is Captum's FeatureAblation. Sources: Zeiler and Fergus, "Visualizing and Understanding
/// Convolutional Networks" (2014); Li, Monroe and Jurafsky, "Understanding Neural Networks through Representation Erasure" (2016).
std::vector<double> occlusion(const ExplainedModel& model, Occlusion how,
                              const Progress& progress = {});

/// By how much the target falls without each part of the model.
struct Ablation {
  Tensor<double, 2> heads;             ///< [layers,H]
  std::vector<double> attention;       ///< [layers], without all that the attention adds
  std::vector<double> attention_skip;  ///< [layers], with nothing but it
  std::vector<double> mlp;
  std::vector<double> mlp_skip;
  std::vector<double> layers;  ///< attention and MLP both
};
/// Source for heads: Michel, Levy and Neubig, "Are Sixteen Heads Really Better than One?" (2019).
Ablation ablation(const ExplainedModel& model, const Progress& progress = {});

}  // namespace qkv::explain
