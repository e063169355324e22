#include "explain/faith.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "explain/agreement.h"
#include "model/random.h"

namespace qkv::explain {
namespace {

constexpr std::array<double, 3> kParts = {0.1, 0.2, 0.5};

constexpr std::size_t kMostSteps = 20;

/// How many tokens are gone at each point: 0 to all of them.
std::vector<std::size_t> counts_of(std::size_t tokens) {
  const std::size_t steps = std::min(tokens, kMostSteps);
  std::vector<std::size_t> counts = {0};
  for (std::size_t i = 1; i <= steps; ++i) counts.push_back((2 * i * tokens + steps) / (2 * steps));
  return counts;
}

double area_under(const Curve& curve) {
  double area = 0;
  for (std::size_t i = 1; i < curve.part.size(); ++i) {
    area += 0.5 * (curve.part[i] - curve.part[i - 1]) * (curve.target[i] + curve.target[i - 1]);
  }
  return area;
}

/// The point with about this part of the tokens: the first at least that has one.
std::size_t point_of(double part, const Curve& curve) {
  const auto last = static_cast<double>(curve.part.size() - 1);
  return static_cast<std::size_t>(std::max(1.0, std::round(part * last)));
}

Spread spread_of_member(std::span<const Faith> faiths, double Faith::*member) {
  std::vector<double> values;
  values.reserve(faiths.size());
  for (const Faith& faith : faiths) values.push_back(faith.*member);
  return spread_of(values);
}

}  // namespace

void summarise(Curves& curves) {
  Curve& deletion = curves.deletion;
  Curve& insertion = curves.insertion;
  deletion.area = area_under(deletion);
  insertion.area = area_under(insertion);
  curves.comprehensiveness = 0;
  curves.sufficiency = 0;
  if (deletion.target.size() < 2) return;
  const double plain = deletion.target.front();
  for (const double part : kParts) {
    const std::size_t point = point_of(part, deletion);
    curves.comprehensiveness += (plain - deletion.target[point]) / kParts.size();
    curves.sufficiency += (plain - insertion.target[point]) / kParts.size();
  }
}

Curves curves(const ExplainedModel& model, std::span<const Index> order, Occlusion how,
              const Progress& progress) {
  const std::vector<std::size_t> counts = counts_of(order.size());
  std::vector<Variant> variants;
  variants.reserve(2 * counts.size());
  for (const std::size_t taken : counts) {
    variants.push_back(without(model, how, order.first(taken)));
  }
  for (const std::size_t put : counts) variants.push_back(without(model, how, order.subspan(put)));
  const std::vector<double> targets = run_all(model, variants, progress);
  Curves result;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double part =
        order.empty() ? 0 : static_cast<double>(counts[i]) / static_cast<double>(order.size());
    result.deletion.part.push_back(part);
    result.deletion.target.push_back(targets[i]);
    result.insertion.part.push_back(part);
    result.insertion.target.push_back(targets[counts.size() + i]);
  }
  summarise(result);
  return result;
}

Perturbations perturbations(const ExplainedModel& model, Occlusion how, Index count,
                            std::uint64_t seed, const Progress& progress) {
  const std::vector<Index> tokens = candidates(model.text());
  Random random(seed);
  Perturbations result;
  std::vector<Variant> variants(1);
  for (Index i = 0; i < count; ++i) {
    std::vector<Index>& set = result.sets.emplace_back();
    for (const Index token : tokens) {
      if (random.uniform() < 0.5) set.push_back(token);
    }
    variants.push_back(without(model, how, set));
  }
  const std::vector<double> targets = run_all(model, variants, progress);
  for (std::size_t i = 1; i < targets.size(); ++i) result.falls.push_back(targets[0] - targets[i]);
  return result;
}

Infidelity infidelity(std::span<const double> scores, const Perturbations& perturbations) {
  double product = 0;
  double squares = 0;
  double falls = 0;
  for (std::size_t i = 0; i < perturbations.sets.size(); ++i) {
    double sum = 0;
    for (const Index token : perturbations.sets[i]) sum += scores[static_cast<std::size_t>(token)];
    product += sum * perturbations.falls[i];
    squares += sum * sum;
    falls += perturbations.falls[i] * perturbations.falls[i];
  }
  if (falls == 0) return {};
  // Σ (β·s − f)² with β = Σ s·f / Σ s²; never below 0 but for rounding.
  const double left = squares > 0 ? std::max(0.0, falls - product * product / squares) : falls;
  return {left / static_cast<double>(perturbations.sets.size()), left / falls};
}

Spread spread_of(std::span<const double> values) {
  if (values.empty()) return {};
  const auto [low, high] = std::ranges::minmax_element(values);
  return {std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size()),
          *low, *high};
}

FaithSetup faith_setup(const ExplainedModel& model, const FaithOptions& options,
                       const Progress& progress) {
  FaithSetup setup;
  setup.how = options.how;
  setup.candidates = candidates(model.text());
  setup.intervention = occlusion(model, options.how, part_of(progress, "one by one", 0, 0.5));
  setup.sets = perturbations(model, options.how, options.sets, options.seed,
                             part_of(progress, "sets", 0.5, 1));
  const std::vector<Variant> ends = {{}, without(model, options.how, setup.candidates)};
  const std::vector<double> targets = model.run(ends);
  setup.target = targets[0];
  setup.baseline = targets[1];
  return setup;
}

MeasuredFaith measure_faith(const ExplainedModel& model, const FaithSetup& setup,
                            std::span<const double> scores, const Progress& progress) {
  MeasuredFaith result;
  result.curves = curves(model, ranking(scores, setup.candidates), setup.how, progress);
  const std::vector<double> mine = chosen(scores, setup.candidates);
  const std::vector<double> theirs = chosen(setup.intervention, setup.candidates);
  result.faith = {.deletion_area = result.curves.deletion.area,
                  .insertion_area = result.curves.insertion.area,
                  .comprehensiveness = result.curves.comprehensiveness,
                  .sufficiency = result.curves.sufficiency,
                  .infidelity = infidelity(scores, setup.sets).share,
                  .spearman = spearman(mine, theirs),
                  .kendall = kendall(mine, theirs)};
  return result;
}

RandomBaseline random_baseline(const ExplainedModel& model, const FaithSetup& setup,
                               const FaithOptions& options, const Progress& progress) {
  Random random(options.seed);
  RandomBaseline result;
  std::vector<Faith>& faiths = result.draws;
  for (Index i = 0; i < options.random_runs; ++i) {
    std::vector<double> scores(static_cast<std::size_t>(model.sizes().tokens));
    for (double& score : scores) score = random.uniform();
    const auto runs = static_cast<double>(options.random_runs);
    MeasuredFaith measured =
        measure_faith(model, setup, scores,
                      part_of(progress, "a random order", static_cast<double>(i) / runs,
                              (static_cast<double>(i) + 1) / runs));
    faiths.push_back(measured.faith);
    result.curves.push_back(std::move(measured.curves));
  }
  result.faith = {.deletion_area = spread_of_member(faiths, &Faith::deletion_area),
                  .insertion_area = spread_of_member(faiths, &Faith::insertion_area),
                  .comprehensiveness = spread_of_member(faiths, &Faith::comprehensiveness),
                  .sufficiency = spread_of_member(faiths, &Faith::sufficiency),
                  .infidelity = spread_of_member(faiths, &Faith::infidelity),
                  .spearman = spread_of_member(faiths, &Faith::spearman),
                  .kendall = spread_of_member(faiths, &Faith::kendall)};
  return result;
}

}  // namespace qkv::explain
