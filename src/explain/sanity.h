// A sanity check: an attribution that explains a model must change where the model's weights become random. Source: Adebayo, Gilmer,
// Muelly, Goodfellow, Hardt and Kim, "Sanity Checks for Saliency Maps" (2018), cascading randomisation.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "explain/attributions.h"
#include "explain/faith.h"

namespace qkv::explain {

/// Spearman's correlation of an attribution with itself, over the candidates, when the last `layers` layers are shuffled.
struct SanityStep {
  Index layers = 0;
  Spread agreement;  ///< over the seeds; near 0 where it heeds these layers, 1 where it does not
};

struct SanityOptions {
  Index seeds = 3;
  std::uint64_t seed = 17;
  /// Layers that are shuffled: 1, 2, …, all where empty.
  std::vector<Index> layers = {};
};

/// For each attribution of `plain` that takes nothing away, a step a number of layers.
struct SanityCheck {
  std::string key;  ///< of the attribution
  std::vector<SanityStep> steps;
};
std::vector<SanityCheck> sanity_checks(const ExplainedModel& model,
                                       const std::vector<Attribution>& plain,
                                       const SanityOptions& options = {},
                                       const Progress& progress = {});

}  // namespace qkv::explain
