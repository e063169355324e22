#include "explain/sanity.h"

#include <numeric>

#include "explain/agreement.h"

namespace qkv::explain {

std::vector<SanityCheck> sanity_checks(const ExplainedModel& model,
                                       const std::vector<Attribution>& plain,
                                       const SanityOptions& options, const Progress& progress) {
  std::vector<Index> counts = options.layers;
  if (counts.empty()) {
    counts.resize(static_cast<std::size_t>(model.sizes().layers));
    std::iota(counts.begin(), counts.end(), Index{1});
  }
  const std::vector<Index> tokens = candidates(model.text());
  std::vector<SanityCheck> checks;
  for (const Attribution& attribution : plain) {
    if (!attribution.intervenes) checks.push_back({attribution.key, {}});
  }
  double done = 0;
  const double runs = static_cast<double>(counts.size()) * static_cast<double>(options.seeds);
  for (const Index layers : counts) {
    std::vector<std::vector<double>> agreements(checks.size());
    for (Index i = 0; i < options.seeds; ++i) {
      const auto shuffled =
          model.with_shuffled_layers(layers, options.seed + static_cast<std::uint64_t>(i));
      // The gap of a model that nobody explains need not be small.
      const CompletenessOptions few{.fewest_steps = 16, .most_steps = 16};
      const Attributions random = attributions(
          *shuffled, {.completeness = few, .interventions = false},
          part_of(progress, "weights in random order", done / runs, (done + 1) / runs));
      ++done;
      for (std::size_t c = 0; c < checks.size(); ++c) {
        agreements[c].push_back(spearman(chosen(find(plain, checks[c].key).scores, tokens),
                                         chosen(find(random.list, checks[c].key).scores, tokens)));
      }
    }
    for (std::size_t c = 0; c < checks.size(); ++c) {
      checks[c].steps.push_back({layers, spread_of(agreements[c])});
    }
  }
  return checks;
}

}  // namespace qkv::explain
