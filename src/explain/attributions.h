// Every attribution of a text by one call, each by its name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "explain/gradient_attributions.h"
#include "explain/occlusion.h"

namespace qkv::explain {

struct Attribution {
  std::string key;             ///< "attention_rollout"
  Text name;                   ///< "rollout"
  std::string source;          ///< "Abnar and Zuidema (2020)"; empty: what it is says its name
  bool intervenes = false;     ///< it took something away and watched
  std::vector<double> scores;  ///< [T]
};

struct AttributionOptions {
  CompletenessOptions completeness = {};
  /// What takes most of the time of a large model.
  bool interventions = true;
};

struct Attributions {
  std::vector<Attribution> list;
  IntegratedGradients integrated;  ///< its steps and gap
};

/// The keys in the order of the list. Raw attention comes first: of the last layer, then the mean of all.
Attributions attributions(const ExplainedModel& model, const AttributionOptions& options = {},
                          const Progress& progress = {});

/// Of that key; it must be there.
const Attribution& find(const std::vector<Attribution>& list, std::string_view key);

}  // namespace qkv::explain
