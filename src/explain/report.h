// Everything that is said of one text.
#pragma once

#include <string>
#include <vector>

#include "explain/attributions.h"
#include "explain/faith.h"
#include "explain/heads.h"
#include "explain/judgement.h"
#include "explain/sanity.h"

namespace qkv::explain {

struct ReportOptions {
  CompletenessOptions completeness = {};
  FaithOptions faith = {};
  SanityOptions sanity = {};  ///< no seeds: no such check
};

struct MethodReport {
  Attribution attribution;
  Faith faith;
  Curves curves;
  std::vector<SanityStep> sanity;  ///< empty for interventions
  Judgement judgement;
};

/// Of one layer, for the heat maps.
struct LayerReport {
  Tensor<double, 3> weights;  ///< [H,T,T]
  Tensor<double, 3>
      delivered_shares;  ///< [H,T,T], of the length of what each key delivers to a query
};

struct Report {
  ModelSizes sizes;
  std::vector<std::string> tokens;
  std::vector<Index> candidates;  ///< what rankings are about
  Text target_name;
  double target = 0;                        ///< of the text as it is
  double baseline = 0;                      ///< without any candidate
  Occlusion how = Occlusion::ReplaceToken;  ///< of faith and judgements
  std::vector<MethodReport> methods;        ///< in the order of attributions()
  RandomBaseline random;
  IntegratedGradients integrated;
  Ablation ablation;
  std::vector<HeadProfile> heads;
  std::vector<LayerReport> layers;
  /// Places that attention must read though their own tokens hardly matter: an earlier layer brought something there.
  std::vector<Index> relays;
  bool heat_map_misleads = false;  ///< raw attention, of the last layer or the mean, misleads
  std::vector<Text> summary;       ///< sentences for a reader
};

/// Throws Interrupted where progress wants no more.
Report explain(const ExplainedModel& model, const ReportOptions& options = {},
               const Progress& progress = {});

/// What report.summary holds, of the other members.
std::vector<Text> summary_of(const Report& report);

}  // namespace qkv::explain
