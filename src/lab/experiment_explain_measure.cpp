#include "lab/experiment_explain_measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/thread_limit.h"
#include "explain/attention_attributions.h"

namespace qkv::lab {
namespace {

/// Of questions, for a mean of each seed.
struct FaithSum {
  std::vector<explain::Faith> faiths;
  std::vector<std::vector<double>> curves;
};

/// The curve at kCurvePoints parts, read between its points.
std::vector<double> resampled(const explain::Curve& curve) {
  std::vector<double> result;
  std::size_t next = 0;
  for (Index i = 0; i < kCurvePoints; ++i) {
    const double part = static_cast<double>(i) / static_cast<double>(kCurvePoints - 1);
    while (next + 2 < curve.part.size() && curve.part[next + 1] < part) ++next;
    const double along = (part - curve.part[next]) / (curve.part[next + 1] - curve.part[next]);
    result.push_back(std::lerp(curve.target[next], curve.target[next + 1], along));
  }
  return result;
}

void to_probabilities(explain::Curve& curve) {
  for (double& target : curve.target) target = std::exp(target);
}

void add_faith(explain::Faith faith, explain::Curves curves, FaithSum& sum) {
  to_probabilities(curves.deletion);
  to_probabilities(curves.insertion);
  explain::summarise(curves);
  faith.deletion_area = curves.deletion.area;
  faith.insertion_area = curves.insertion.area;
  faith.comprehensiveness = curves.comprehensiveness;
  faith.sufficiency = curves.sufficiency;
  sum.faiths.push_back(faith);
  sum.curves.push_back(resampled(curves.deletion));
}

void add_seed(const FaithSum& sum, FaithBySeed& by_seed) {
  const auto mean = [&](double explain::Faith::*member) {
    double total = 0;
    for (const explain::Faith& faith : sum.faiths) total += faith.*member;
    return total / static_cast<double>(sum.faiths.size());
  };
  by_seed.deletion.push_back(mean(&explain::Faith::deletion_area));
  by_seed.insertion.push_back(mean(&explain::Faith::insertion_area));
  by_seed.comprehensiveness.push_back(mean(&explain::Faith::comprehensiveness));
  by_seed.sufficiency.push_back(mean(&explain::Faith::sufficiency));
  by_seed.infidelity.push_back(mean(&explain::Faith::infidelity));
  by_seed.spearman.push_back(mean(&explain::Faith::spearman));
  by_seed.kendall.push_back(mean(&explain::Faith::kendall));
  std::vector<double>& curve = by_seed.curve.emplace_back(kCurvePoints, 0.0);
  for (const std::vector<double>& one : sum.curves) {
    for (std::size_t i = 0; i < curve.size(); ++i) {
      curve[i] += one[i] / static_cast<double>(sum.curves.size());
    }
  }
}

bool is_hit(const KnownQuestion& question, std::span<const double> scores) {
  const Index first = explain::ranking(scores, question.candidates).front();
  return std::ranges::find(question.relevant, first) != question.relevant.end();
}

void count_hits(const KnownQuestion& question, const explain::Attributions& attributions,
                TaskFindings& findings) {
  ++findings.questions;
  findings.chance += static_cast<double>(question.relevant.size()) /
                     static_cast<double>(question.candidates.size());
  for (std::size_t m = 0; m < attributions.list.size(); ++m) {
    const explain::Attribution& attribution = attributions.list[m];
    if (m == findings.methods.size()) {
      findings.methods.push_back(
          {attribution.key, attribution.name, attribution.source, 0, {}, {}, {}});
    }
    if (is_hit(question, attribution.scores)) ++findings.methods[m].hits;
  }
}

double worst_row_sum(const explain::Records& records) {
  const Tensor<double, 2> matrix = explain::rollout(records);
  double worst = 0;
  for (Index t = 0; t < matrix.shape(0); ++t) {
    double sum = 0;
    for (Index s = 0; s < matrix.shape(1); ++s) sum += matrix(t, s);
    worst = std::max(worst, std::fabs(sum - 1));
  }
  return worst;
}

/// Sums of the reports of one seed.
struct SeedReports {
  std::vector<FaithSum> methods;
  FaithSum random;
};

void add_report(const explain::Report& report, SeedReports& sums, TaskFindings& findings) {
  ++findings.reports;
  if (report.heat_map_misleads) ++findings.misleading;
  if (!report.relays.empty()) ++findings.relays;
  sums.methods.resize(report.methods.size());
  for (std::size_t m = 0; m < report.methods.size(); ++m) {
    add_faith(report.methods[m].faith, report.methods[m].curves, sums.methods[m]);
  }
  for (std::size_t i = 0; i < report.random.curves.size(); ++i) {
    add_faith(report.random.draws[i], report.random.curves[i], sums.random);
  }
}

void add_sanity(const explain::Report& report, TaskFindings& findings) {
  for (std::size_t m = 0; m < report.methods.size(); ++m) {
    const auto& steps = report.methods[m].sanity;
    if (steps.empty()) continue;
    findings.methods[m].last_shuffled.push_back(steps.front().agreement.mean);
    findings.methods[m].all_shuffled.push_back(steps.back().agreement.mean);
  }
}

/// The questions of one model.
void ask(const KnownModel& model, std::uint64_t seed, const FindingOptions& what,
         const ExperimentOptions& options, const Stage& stage, TaskFindings& findings) {
  Random random(seed);
  const TokenBatch batch = findings.task.setup.task.held_out(what.questions, random);
  SeedReports sums;
  for (Index n = 0; n < what.questions; ++n) {
    report(options, stage.what,
           stage.begin + (stage.end - stage.begin) * static_cast<double>(n) /
                             static_cast<double>(what.questions));
    const KnownQuestion question = findings.task.question(batch, n, random);
    const explain::DecoderModel explained = asked(model, question);
    // Which token comes first does not hang on the last hundredth.
    const explain::AttributionOptions rough{.completeness = {.gap = 0.05}};
    count_hits(question, explain::attributions(explained, rough), findings);
    findings.rollout_error = std::max(findings.rollout_error, worst_row_sum(explained.record()));
    if (n >= what.reports) continue;
    explain::ReportOptions all;
    all.faith.how = explain::Occlusion::SwapToken;
    all.faith.seed = seed;
    all.sanity.seed = seed;
    if (n > 0) all.sanity.seeds = 0;
    explain::Report made = explain::explain(explained, all);
    add_report(made, sums, findings);
    if (n > 0) continue;
    add_sanity(made, findings);
    findings.ablations.push_back(made.ablation);
    if (findings.example.methods.empty()) findings.example = std::move(made);
  }
  for (std::size_t m = 0; m < sums.methods.size(); ++m) {
    add_seed(sums.methods[m], findings.methods[m].faith);
  }
  add_seed(sums.random, findings.random);
}

}  // namespace

const MethodOnTask& TaskFindings::method(std::string_view key) const {
  return *std::ranges::find(methods, key, &MethodOnTask::key);
}

std::vector<double> TaskFindings::accuracies() const {
  std::vector<double> result;
  for (const KnownModel& model : models) result.push_back(model.accuracy);
  return result;
}

TaskFindings find_on_task(const KnownTask& task, const FindingOptions& what,
                          const ExperimentOptions& options, const Stage& stage) {
  TaskFindings findings;
  findings.task = task;
  const std::vector<std::uint64_t> from = seeds(options, what.seeds);
  const double half = std::midpoint(stage.begin, stage.end);
  findings.models = train_known(task, from, options, {stage.what, stage.begin, half});
  // Texts this short are slower on two threads than on one.
  const ThreadLimit limit(1);
  const double width = (stage.end - half) / what.seeds;
  double begin = half;
  for (std::size_t i = 0; i < from.size(); ++i) {
    ask(findings.models[i], from[i], what, options,
        {fmt::format("{}, seed {}", stage.what, from[i]), begin, begin + width}, findings);
    begin += width;
  }
  findings.chance /= static_cast<double>(findings.questions);
  return findings;
}

GapFindings find_gaps(const TaskFindings& findings, const ExperimentOptions& options) {
  const ThreadLimit limit(1);
  GapFindings result;
  result.steps = {8, 16, 32, 64, 128, 256, 512};
  Random random(options.seed);
  const TokenBatch batch = findings.task.setup.task.held_out(1, random);
  const KnownQuestion question = findings.task.question(batch, 0, random);
  for (const KnownModel& model : findings.models) {
    const explain::DecoderModel explained = asked(model, question);
    std::vector<double>& gaps = result.gaps.emplace_back();
    for (const Index steps : result.steps) {
      const auto integrated = explain::integrated_gradients(explained, steps);
      gaps.push_back(integrated.gap / std::fabs(integrated.difference));
    }
  }
  return result;
}

}  // namespace qkv::lab
