#include "check/diagnosis.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>

#include "check/diagnosis_parts.h"
#include "check/diagnosis_whole.h"
#include "check/facts.h"
#include "check/fit.h"
#include "check/pairs.h"
#include "check/remarks.h"
#include "check/sample_rows.h"

namespace qkv {
namespace {

constexpr std::size_t kRivals = 5;
/// Multiplications of a trial on the rows that singles are tried on.
constexpr double kSample = 4e6;

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
  /// What rounding could turn into anything explains nothing.
  bool accepts(const Trial& trial, double factor) const {
    return accepts(trial.distance, factor) && trial.unexplained < 0.03;
  }
  bool decisive(const Screen& screen, const Trial& other) const;
  void screen_singles(const Screen& few, const Screen& more, bool challenge);
  void explain_rows(const Screen& few, const Screen& more, bool challenge, bool all);
  std::vector<Hypothesis> nearest_singles();
  void name_policy(Explanation& explanation) const;
  std::optional<Explanation> half_that_suffices(const Explanation& pair, const Screen& more) const;
  void add_input_causes(const InputCauses& inputs, const std::vector<OutputRow>& rows);
  std::vector<OutputRow> head_rows(const std::vector<OutputRow>& rows) const;
  void finish(const Screen& few, const Screen& more);
  void consider(Explanation explanation, const Screen& few, const Screen& more);
  std::vector<Explanation> confirm(std::vector<Explanation> equal, bool all);

  const Dump& dump_;
  const DiagnoseOptions& options_;
  Evaluator evaluator_;
  Catalogue catalogue_;
  Whole whole_;
  std::vector<Explanation> accepted_;
  std::vector<Explanation> rejected_;
  std::vector<Trial> policies_;  // what was meant but for rows without a key, on the same rows
  Trial intended_;               // on the rows that singles are tried on
  Diagnosis diagnosis_;
};

/// Whether a computation explains the dump so much better than what was meant that chance does not.
bool Diagnoser::decisive(const Screen& screen, const Trial& other) const {
  const Contest contest = screen.contest(intended_, other);
  const double gain = intended_.score - other.score;
  if (!(contest.place > 0.7) || (indistinguishable(contest, dump_.ran_in) && gain < 1))
    return false;
  return gain * static_cast<double>(screen.rows().size()) > 12;
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
  if (accepts(explanation.trial, 2)) {
    explanation.trial = tried(more);
    if (policies) name_policy(explanation);
    // What a policy for rows without a key explains alone is that policy.
    const bool elsewhere =
        std::none_of(policies_.begin(), policies_.end(), [&](const Trial& policy) {
          return indistinguishable(more.contest(policy, explanation.trial), dump_.ran_in);
        });
    const bool about_empty = explanation.parts.size() == 1 &&
                             (explanation.parts[0].id == "M5" || explanation.parts[0].id == "M6");
    if (explanation.parts.size() < 3 && accepts(explanation.trial, 1.25) &&
        (elsewhere || about_empty) && decisive(more, explanation.trial)) {
      accepted_.push_back(half_that_suffices(explanation, more).value_or(std::move(explanation)));
      return;
    }
  }
  rejected_.push_back(std::move(explanation));
}

/// One cause alone, where rounding cannot tell it from the two together. Policies for empty rows are told apart elsewhere.
std::optional<Explanation> Diagnoser::half_that_suffices(const Explanation& pair,
                                                         const Screen& more) const {
  if (pair.parts.size() != 2 || (pair.touches() & stage::empty) != 0) return std::nullopt;
  for (const Hypothesis& part : pair.parts) {
    Explanation half{{part}, more.trial_with_policy(part.variant())};
    if (accepts(half.trial, 1.25) &&
        indistinguishable(more.contest(pair.trial, half.trial), dump_.ran_in)) {
      return half;
    }
  }
  return std::nullopt;
}

/// Another policy than the intended one, in rows that are meant to be empty and no others, is a cause of its own.
void Diagnoser::name_policy(Explanation& explanation) const {
  const EmptyPolicy policy = explanation.trial.variant.empty;
  const std::vector<bool>& empty = explanation.trial.rows.empty;
  if (policy == EmptyPolicy::Intended || dump_.empty_row == EmptyRow::Any) return;
  // X2 touches the axis too, but transposing the weights leaves no row without a key.
  const std::uint32_t touches = explanation.touches();
  const std::uint32_t emptying = stage::all_rules | stage::attended | stage::softcap |
                                 ((touches & stage::transposed) != 0 ? 0 : stage::axis);
  for (std::size_t i = 0; i < empty.size(); ++i) {
    const bool own = (touches & emptying) != 0;
    if (own && empty[i] && !intended_.rows.empty[i]) return;
  }
  for (const Hypothesis& hypothesis : catalogue_.hypotheses) {
    if (hypothesis.touches != stage::empty || hypothesis.variant().empty != policy) continue;
    explanation.parts.push_back(hypothesis);
    return;
  }
}

void Diagnoser::screen_singles(const Screen& few, const Screen& more, bool challenge) {
  std::vector<const Hypothesis*> order;
  for (const Hypothesis& hypothesis : catalogue_.hypotheses) {
    if (!hypothesis.free) order.push_back(&hypothesis);
  }
  for (const Hypothesis& hypothesis : catalogue_.hypotheses) {
    // Chance alone favours a constant that is free.
    if (hypothesis.free && !challenge) order.push_back(&hypothesis);
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

/// Those of equal explanations that hold of every row.
std::vector<Explanation> Diagnoser::confirm(std::vector<Explanation> equal, bool all) {
  if (all) return equal;
  std::vector<Explanation> confirmed;
  for (Explanation& explanation :
       measured_on_the_whole(evaluator_, whole_.rows, std::move(equal),
                             [&](double done) { report("the whole", done); })) {
    (accepts(explanation.trial.distance, 1.25) ? confirmed : rejected_)
        .push_back(std::move(explanation));
  }
  return confirmed;
}

void Diagnoser::explain_rows(const Screen& few, const Screen& more, bool challenge, bool all) {
  screen_singles(few, more, challenge);
  if (accepted_.empty() && options_.pairs && !challenge) {
    for (Explanation& pair :
         promising_pairs(catalogue_, few, [&](double done) { report("pairs", done); })) {
      consider(std::move(pair), few, more);
    }
    if (accepted_.empty()) {
      const std::vector<Hypothesis> nearest = nearest_singles();
      for (Explanation& pair : fitted_pairs(catalogue_, nearest, few, [&](double done) {
             report("pairs with a free parameter", done);
           })) {
        consider(std::move(pair), few, more);
      }
    }
  }
  const std::vector<OutputRow> rows = head_rows(more.rows());
  for (const Explanation& explanation :
       one_a_class(confirm(equal_best(more, std::move(accepted_)), all))) {
    Cause cause = cause_of(explanation);
    if (const auto base = cause_of_log_sum_exp(evaluator_, explanation.trial.variant, rows)) {
      add_to(cause, *base);
    }
    diagnosis_.causes.push_back(std::move(cause));
  }
}

/// Discrete hypotheses that were rejected alone, the nearest first.
std::vector<Hypothesis> Diagnoser::nearest_singles() {
  std::stable_sort(rejected_.begin(), rejected_.end(),
                   [](const auto& a, const auto& b) { return a.trial.score < b.trial.score; });
  std::vector<Hypothesis> nearest;
  for (const Explanation& explanation : rejected_) {
    if (explanation.parts.size() == 1 && !explanation.fitted())
      nearest.push_back(explanation.parts[0]);
  }
  return nearest;
}

/// q, k and v came out wrong, and perhaps what follows them did too.
void Diagnoser::add_input_causes(const InputCauses& inputs, const std::vector<OutputRow>& rows) {
  if (inputs.causes.empty()) return;
  const std::vector<Cause> later = std::move(diagnosis_.causes);
  diagnosis_.causes.clear();
  if (later.empty()) {
    diagnosis_.causes = inputs.causes;
    const auto base = cause_of_log_sum_exp(evaluator_, {}, head_rows(rows));
    for (Cause& cause : diagnosis_.causes) {
      if (base) add_to(cause, *base);
    }
  }
  for (const Cause& first : inputs.causes) {
    for (Cause cause : later) {
      add_to(cause, first);
      diagnosis_.causes.push_back(std::move(cause));
    }
  }
}

Diagnosis Diagnoser::run(bool challenge) {
  whole_ = measure_whole(evaluator_, [&](double done) { report("what was meant", done); });
  diagnosis_.intended = whole_.intended;
  const double one = whole_.rows.empty() ? 1 : Screen(evaluator_, {whole_.rows.front()}).products();
  const double limit = std::clamp(kSample / one, 128.0, 512.0);
  const SampleRows sample = sample_rows(evaluator_, whole_.rows, whole_.rms,
                                        challenge ? 512 : static_cast<std::size_t>(limit));
  const Screen few(evaluator_, sample.few);
  const Screen more(evaluator_, sample.more);
  intended_ = more.trial({});
  for (const Hypothesis& hypothesis : catalogue_.hypotheses) {
    if (hypothesis.touches == stage::empty) policies_.push_back(more.trial(hypothesis.variant()));
  }
  const bool right = diagnosis_.intended.rms < 1.2 && diagnosis_.intended.max < 8;

  const InputCauses inputs = causes_of_inputs(dump_, catalogue_);
  if (inputs.differ) {
    std::erase_if(catalogue_.hypotheses, [](const Hypothesis& hypothesis) {
      return (hypothesis.touches & (stage::projection | stage::split)) != 0;
    });
  }
  if (const auto second = cause_of_second_run(more, intended_)) {
    diagnosis_.causes.push_back(*second);
  } else if (challenge || !right) {
    explain_rows(few, more, challenge, sample.all);
  }
  add_input_causes(inputs, sample.more);
  if (diagnosis_.causes.empty() && accepts(diagnosis_.intended, 1)) {
    diagnosis_.causes = causes_of_gradients(dump_);
    if (const auto cause = cause_of_log_sum_exp(evaluator_, {}, head_rows(sample.more))) {
      diagnosis_.causes.push_back(*cause);
    }
  }
  if (diagnosis_.causes.empty() && !challenge)
    diagnosis_.facts = facts_of(evaluator_, whole_.rows, whole_.rms);
  finish(few, more);
  return std::move(diagnosis_);
}

/// Rows of heads where the dump's own are tokens.
std::vector<OutputRow> Diagnoser::head_rows(const std::vector<OutputRow>& rows) const {
  if (!evaluator_.projected()) return rows;
  std::vector<OutputRow> result;
  for (const OutputRow& row : rows) {
    for (Index h = 0; h < dump_.shape.heads; ++h) result.push_back({row.b, h, row.t});
  }
  return result;
}

void Diagnoser::finish(const Screen& few, const Screen& more) {
  std::stable_sort(rejected_.begin(), rejected_.end(),
                   [](const auto& a, const auto& b) { return a.trial.score < b.trial.score; });
  for (const Explanation& rival : rejected_) {
    if (diagnosis_.rivals.size() >= kRivals) break;
    const std::string text = rival.text();
    const bool listed = std::any_of(diagnosis_.rivals.begin(), diagnosis_.rivals.end(),
                                    [&](const Rival& other) { return other.text == text; });
    if (!listed) diagnosis_.rivals.push_back({rival.ids(), text, rival.trial.distance});
  }
  std::vector<std::string> ids;
  for (const Cause& cause : diagnosis_.causes) {
    ids.insert(ids.end(), cause.ids.begin(), cause.ids.end());
  }
  if (diagnosis_.causes.size() > 1) diagnosis_.separation = what_separates(ids);
  diagnosis_.remarks = remarks_of(evaluator_, {ids, ids.empty() && diagnosis_.facts.empty()});
  diagnosis_.not_shown = classes_not_shown(catalogue_, few, more, intended_);
}

}  // namespace

Diagnosis diagnose(const Dump& dump, const DiagnoseOptions& options) {
  return Diagnoser(dump, options).run(false);
}

Diagnosis challenge(const Dump& dump, const DiagnoseOptions& options) {
  return Diagnoser(dump, options).run(true);
}

}  // namespace qkv
