#include "explain/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "explain/attention_attributions.h"

namespace qkv::explain {
namespace {

/// [H,T,T]; a row sums to 1.
Tensor<double, 3> delivered_shares(const LayerRecord& record) {
  Tensor<double, 3> shares(record.weights.shape());
  const auto [heads, queries, keys] = shares.shape();
  for (Index h = 0; h < heads; ++h) {
    const Tensor<double, 2> norms = delivered_norms(record, h);
    for (Index t = 0; t < queries; ++t) {
      const double sum = std::accumulate(&norms(t, 0), &norms(t, 0) + keys, 0.0);
      if (sum == 0) continue;
      for (Index s = 0; s < keys; ++s) shares(h, t, s) = norms(t, s) / sum;
    }
  }
  return shares;
}

std::vector<LayerReport> layer_reports(const Records& records) {
  std::vector<LayerReport> layers;
  for (const LayerRecord& record : records.layers) {
    layers.push_back({record.weights, delivered_shares(record)});
  }
  return layers;
}

void add_sanity(const ExplainedModel& model, const std::vector<Attribution>& plain,
                const SanityOptions& options, const Progress& progress, Report& report) {
  if (options.seeds < 1) return;
  for (SanityCheck& check : sanity_checks(model, plain, options, progress)) {
    for (MethodReport& method : report.methods) {
      if (method.attribution.key == check.key) method.sanity = std::move(check.steps);
    }
  }
}

/// The largest fall among the candidates; 0 where none is positive.
double largest_fall(const Report& report, const std::vector<double>& falls) {
  double largest = 0;
  for (const Index token : report.candidates) {
    largest = std::max(largest, falls[static_cast<std::size_t>(token)]);
  }
  return largest;
}

/// Hidden, the place costs more than a third of the most that one costs, and no mere trifle beside what a swapped token costs; its
/// own token swapped, less than a tenth. None where no other token was tried, and none in a single layer, which reads tokens only.
std::vector<Index> relays_of(const Report& report, const std::vector<Attribution>& all) {
  std::vector<Index> relays;
  if (all.back().key != key_of(Occlusion::SwapToken) || report.sizes.layers < 2) return relays;
  const std::vector<double>& hidden = find(all, key_of(Occlusion::HideKey)).scores;
  const std::vector<double>& replaced = all.back().scores;
  const double most_hidden = largest_fall(report, hidden);
  const double most_replaced = largest_fall(report, replaced);
  if (most_replaced <= 0) return relays;
  for (const Index token : report.candidates) {
    const auto at = static_cast<std::size_t>(token);
    if (hidden[at] > std::max(most_hidden / 3, most_replaced / 10) &&
        replaced[at] < 0.1 * most_replaced) {
      relays.push_back(token);
    }
  }
  return relays;
}

}  // namespace

Report explain(const ExplainedModel& model, const ReportOptions& options,
               const Progress& progress) {
  Report report;
  const ExplainedText& text = model.text();
  report.sizes = model.sizes();
  report.tokens = text.tokens;
  report.candidates = candidates(text);
  report.target_name = text.target;
  report.how = options.faith.how;
  const FaithSetup setup = faith_setup(model, options.faith,
                                       part_of(progress, "what matters, by intervention", 0, 0.05));
  report.target = setup.target;
  report.baseline = setup.baseline;
  for (const double target : {report.target, report.baseline}) {
    if (!std::isfinite(target)) {
      throw std::invalid_argument(fmt::format("explain: the {}: expected a finite number, got {}",
                                              report.target_name.english, target));
    }
  }

  const Records records = model.record();
  report.heads = head_profiles(model, records);
  report.layers = layer_reports(records);
  report.ablation = ablation(model, part_of(progress, "heads, layers and skips cut", 0.05, 0.1));
  Attributions all = attributions(model, {.completeness = options.completeness},
                                  part_of(progress, "attributions", 0.1, 0.3));
  report.integrated = std::move(all.integrated);

  report.relays = relays_of(report, all.list);

  report.random =
      random_baseline(model, setup, options.faith, part_of(progress, "random orders", 0.3, 0.4));
  for (std::size_t i = 0; i < all.list.size(); ++i) {
    const auto count = static_cast<double>(all.list.size());
    const double begin = 0.4 + 0.4 * static_cast<double>(i) / count;
    Attribution& attribution = all.list[i];
    MeasuredFaith measured =
        measure_faith(model, setup, attribution.scores,
                      part_of(progress, "deletion and insertion: " + attribution.name.english,
                              begin, begin + 0.4 / count));
    const Judgement judgement = judge(setup, attribution.scores, measured.faith, report.random);
    report.methods.push_back(
        {attribution, measured.faith, std::move(measured.curves), {}, judgement});
  }
  add_sanity(model, all.list, options.sanity, part_of(progress, "weights in random order", 0.8, 1),
             report);
  report.heat_map_misleads = std::ranges::any_of(report.methods, [](const MethodReport& method) {
    return method.attribution.key.starts_with("raw_attention") &&
           method.judgement.verdict == Verdict::Misleads;
  });
  report.summary = summary_of(report);
  return report;
}

}  // namespace qkv::explain
