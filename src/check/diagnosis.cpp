#include "check/diagnosis.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "check/explanation.h"
#include "check/fit.h"
#include "check/pairs.h"
#include "check/sample_rows.h"

namespace qkv {
namespace {

constexpr std::size_t kRowsOfChunk = 4096;
constexpr std::size_t kRivals = 5;

class Diagnoser {
 public:
  Diagnoser(const Dump& dump, const DiagnoseOptions& options)
      : dump_(dump),
        options_(options),
        evaluator_(dump, options.threads),
        catalogue_(catalogue_for(dump)) {}

  Diagnosis run(bool challenge);

 private:
  void report(std::string_view what, double done) const {
    if (options_.progress) options_.progress(what, done);
  }
  bool accepts(const Distance& distance, double factor) const {
    return distance.rms <= factor * rms_tolerance(dump_.ran_in) &&
           distance.max <= factor * max_tolerance(dump_.ran_in);
  }
  void measure_intended();
  void screen_singles(const Screen& few, const Screen& more);
  void consider(Explanation explanation, const Screen& few, const Screen& more);
  std::vector<Explanation> confirm(const Screen& more, std::vector<Explanation> equal, bool all);
  void list_not_shown(const Screen& more, const Trial& intended);

  const Dump& dump_;
  const DiagnoseOptions& options_;
  Evaluator evaluator_;
  Catalogue catalogue_;
  std::vector<OutputRow> rows_;  // that are read
  std::vector<double> rms_;      // of each, from what was meant
  std::vector<Explanation> accepted_;
  std::vector<Explanation> rejected_;
  Diagnosis diagnosis_;
};

/// Adds up distances of chunks.
struct DistanceSum {
  double squares = 0;
  double count = 0;
  double max = 0;
  void add(const Distance& distance, double elements) {
    squares += distance.rms * distance.rms * elements;
    count += elements;
    max = std::max(max, distance.max);
  }
  Distance distance() const { return {count > 0 ? std::sqrt(squares / count) : 0, max}; }
};

void Diagnoser::measure_intended() {
  DistanceSum sum;
  const std::vector<OutputRow> all = evaluator_.all_rows();
  const bool any = dump_.empty_row == EmptyRow::Any;
  for (std::size_t begin = 0; begin < all.size(); begin += kRowsOfChunk) {
    report("what was meant", static_cast<double>(begin) / static_cast<double>(all.size()));
    const std::size_t end = std::min(all.size(), begin + kRowsOfChunk);
    std::vector<OutputRow> chunk;
    for (std::size_t i = begin; i < end; ++i) {
      if (!dump_.read_rows || (*dump_.read_rows)(all[i].b, all[i].t)) chunk.push_back(all[i]);
    }
    const Screen screen(evaluator_, chunk);
    const Trial trial = screen.trial({});
    double squares = 0;
    double largest = 0;
    std::size_t count = 0;
    for (std::size_t i = 0; i < chunk.size(); ++i) {
      if (any && trial.rows.empty[i]) continue;
      const double rms = screen.row_rms(trial, i);
      rows_.push_back(chunk[i]);
      rms_.push_back(rms);
      squares += rms * rms;
      largest = std::max(largest, rms);
      ++count;
    }
    if (count == 0) continue;
    sum.add({std::sqrt(squares / static_cast<double>(count)),
             count == chunk.size() ? trial.distance.max : largest},
            static_cast<double>(count));
  }
  diagnosis_.intended = sum.distance();
}

void Diagnoser::consider(Explanation explanation, const Screen& few, const Screen& more) {
  const Variant variant = explanation.trial.variant;
  const bool policies =
      std::none_of(explanation.parts.begin(), explanation.parts.end(),
                   [](const Hypothesis& part) { return (part.touches & stage::empty) != 0; });
  const auto tried = [&](const Screen& screen) {
    return policies ? screen.trial_with_policy(variant) : screen.trial(variant);
  };
  explanation.trial = tried(few);
  if (accepts(explanation.trial.distance, 2)) {
    explanation.trial = tried(more);
    if (accepts(explanation.trial.distance, 1.25)) {
      // A change that this dump does not show, beside a policy for empty rows, is the policy alone.
      Variant policy;
      policy.empty = explanation.trial.variant.empty;
      const bool is_policy =
          policies && policy.empty != EmptyPolicy::Intended &&
          indistinguishable(more.contest(more.trial(policy), explanation.trial), dump_.ran_in);
      if (!is_policy) {
        accepted_.push_back(std::move(explanation));
        return;
      }
    }
  }
  rejected_.push_back(std::move(explanation));
}

void Diagnoser::screen_singles(const Screen& few, const Screen& more) {
  std::vector<const Hypothesis*> order;
  for (const Hypothesis& hypothesis : catalogue_.hypotheses) {
    if (!hypothesis.free) order.push_back(&hypothesis);
  }
  for (const Hypothesis& hypothesis : catalogue_.hypotheses) {
    if (hypothesis.free) order.push_back(&hypothesis);
  }
  std::size_t done = 0;
  for (const Hypothesis* hypothesis : order) {
    report("single causes", static_cast<double>(done++) / static_cast<double>(order.size()));
    if (!hypothesis->free) {
      consider({{*hypothesis}, {hypothesis->variant(), {}, {}}}, few, more);
      continue;
    }
    const bool known = std::any_of(
        accepted_.begin(), accepted_.end(),
        [&](const Explanation& other) { return (other.touches() & hypothesis->touches) != 0; });
    if (known) continue;
    if (const auto fixed = fit(*hypothesis, {}, few, more)) {
      consider({{*fixed}, {fixed->variant(), {}, {}}}, few, more);
    }
  }
}

std::vector<Explanation> Diagnoser::confirm(const Screen& more, std::vector<Explanation> equal,
                                            bool all) {
  if (all || equal.empty()) return equal;
  static_cast<void>(more);
  std::vector<DistanceSum> sums(equal.size());
  const auto width = static_cast<double>(evaluator_.width());
  for (std::size_t begin = 0; begin < rows_.size(); begin += kRowsOfChunk) {
    report("the whole", static_cast<double>(begin) / static_cast<double>(rows_.size()));
    const std::size_t end = std::min(rows_.size(), begin + kRowsOfChunk);
    const Screen screen(evaluator_, {rows_.begin() + static_cast<std::ptrdiff_t>(begin),
                                     rows_.begin() + static_cast<std::ptrdiff_t>(end)});
    for (std::size_t i = 0; i < equal.size(); ++i) {
      sums[i].add(screen.trial(equal[i].trial.variant).distance,
                  static_cast<double>(end - begin) * width);
    }
  }
  std::vector<Explanation> confirmed;
  for (std::size_t i = 0; i < equal.size(); ++i) {
    equal[i].trial.distance = sums[i].distance();
    (accepts(equal[i].trial.distance, 1.25) ? confirmed : rejected_).push_back(std::move(equal[i]));
  }
  return confirmed;
}

void Diagnoser::list_not_shown(const Screen& more, const Trial& intended) {
  std::set<std::string> visible;
  std::set<std::string> listed;
  for (const Hypothesis& hypothesis : catalogue_.hypotheses) {
    listed.insert(hypothesis.id);
    if (visible.contains(hypothesis.id)) continue;
    Variant variant = hypothesis.variant();
    if (hypothesis.free)
      hypothesis.free->set(variant, hypothesis.free->grid[hypothesis.free->grid.size() / 3]);
    if (!indistinguishable(more.contest(intended, more.trial(variant)), dump_.ran_in)) {
      visible.insert(hypothesis.id);
    }
  }
  for (const std::string& id : catalogue_ids()) {
    const auto lacking = std::find_if(catalogue_.lacking.begin(), catalogue_.lacking.end(),
                                      [&](const NotShown& other) { return other.id == id; });
    if (lacking != catalogue_.lacking.end()) {
      diagnosis_.not_shown.push_back(*lacking);
    } else if (listed.contains(id) && !visible.contains(id)) {
      diagnosis_.not_shown.push_back({id, "it gives the intended numbers here, to rounding"});
    }
  }
}

Diagnosis Diagnoser::run(bool challenge) {
  measure_intended();
  const SampleRows sample = sample_rows(evaluator_, rows_, rms_, challenge ? 512 : 128);
  const Screen few(evaluator_, sample.few);
  const Screen more(evaluator_, sample.more);
  const Trial intended = more.trial({});

  if (challenge || !accepts(diagnosis_.intended, 1)) {
    screen_singles(few, more);
    if (accepted_.empty() && options_.pairs && !challenge) {
      for (Explanation& pair : promising_pairs(catalogue_, few, more, rejected_,
                                               [&](double done) { report("pairs", done); })) {
        consider(std::move(pair), few, more);
      }
    }
  }
  std::vector<Explanation> equal = equal_best(more, std::move(accepted_));
  if (challenge && !equal.empty()) {
    // Only what the dump's structure decides against what was meant.
    const Contest contest = more.contest(intended, equal.front().trial);
    if (indistinguishable(contest, dump_.ran_in) || contest.place < 0.7) equal.clear();
  }
  equal = confirm(more, std::move(equal), sample.all);

  for (const Explanation& explanation : equal) diagnosis_.causes.push_back(cause_of(explanation));
  std::stable_sort(rejected_.begin(), rejected_.end(), [](const auto& a, const auto& b) {
    return a.trial.distance.rms < b.trial.distance.rms;
  });
  for (const Explanation& rival : rejected_) {
    if (diagnosis_.rivals.size() >= kRivals) break;
    diagnosis_.rivals.push_back({rival.ids(), rival.text(), rival.trial.distance});
  }
  std::vector<std::string> ids;
  for (const Cause& cause : diagnosis_.causes)
    ids.insert(ids.end(), cause.ids.begin(), cause.ids.end());
  if (diagnosis_.causes.size() > 1) diagnosis_.separation = what_separates(ids);
  list_not_shown(more, intended);
  return std::move(diagnosis_);
}

}  // namespace

Diagnosis diagnose(const Dump& dump, const DiagnoseOptions& options) {
  return Diagnoser(dump, options).run(false);
}

Diagnosis challenge(const Dump& dump, const DiagnoseOptions& options) {
  return Diagnoser(dump, options).run(true);
}

}  // namespace qkv
