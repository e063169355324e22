#include "check/explanation.h"

#include <algorithm>
#include <cmath>

namespace qkv {
namespace {

/// How much more of a square, in those of the noise, chance lets a wrong computation have.
constexpr double kChance = 10;

bool is_low(DType ran_in) { return ran_in == DType::Float16 || ran_in == DType::BFloat16; }

const char* policy_text(EmptyPolicy policy) {
  switch (policy) {
    case EmptyPolicy::Zero:
      return "0";
    case EmptyPolicy::NaN:
      return "NaN";
    case EmptyPolicy::Mean:
      return "the mean of all values";
    case EmptyPolicy::MeanOfRest:
      return "the mean of the values that the other rules leave";
    case EmptyPolicy::Softmax:
      return "the softmax of all scores";
    case EmptyPolicy::AddedLowest:
    case EmptyPolicy::AddedLowestFloat32:
      return "what the lowest number gives, added once for each rule";
    default:
      return "the softmax of the scores that the other rules leave";
  }
}

}  // namespace

std::vector<std::string> Explanation::ids() const {
  std::vector<std::string> ids;
  for (const Hypothesis& part : parts) ids.push_back(part.id);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::string Explanation::text() const {
  std::string text;
  for (const Hypothesis& part : parts) text += (text.empty() ? "" : "; and ") + part.text;
  const bool about_empty = std::any_of(parts.begin(), parts.end(), [](const Hypothesis& part) {
    return (part.touches & stage::empty) != 0;
  });
  if (trial.variant.empty != EmptyPolicy::Intended && !about_empty) {
    text +=
        std::string("; rows that are left without a key give ") + policy_text(trial.variant.empty);
  }
  return text;
}

int Explanation::rank() const {
  // A row left without a key that its scores decide about after all is a rule that does nothing.
  const EmptyPolicy empty = trial.variant.empty;
  const bool strange = empty == EmptyPolicy::Softmax || empty == EmptyPolicy::SoftmaxOfRest ||
                       empty == EmptyPolicy::MeanOfRest;
  int rank = strange ? 45 : 0;
  for (const Hypothesis& part : parts) rank += part.rank;
  return rank + 100 * (static_cast<int>(parts.size()) - 1);
}

bool Explanation::fitted() const {
  return std::any_of(parts.begin(), parts.end(),
                     [](const Hypothesis& part) { return part.fitted; });
}

std::uint32_t Explanation::touches() const {
  std::uint32_t touches = 0;
  for (const Hypothesis& part : parts) touches |= part.touches;
  return touches;
}

bool indistinguishable(const Contest& contest, DType ran_in) {
  if (is_low(ran_in)) return contest.difference < 6 || contest.largest < 0.05;
  return contest.largest < 5;
}

std::vector<Explanation> equal_best(const Screen& screen, std::vector<Explanation> accepted) {
  if (accepted.empty()) return accepted;
  const DType ran_in = screen.evaluator().dump().ran_in;
  std::stable_sort(accepted.begin(), accepted.end(),
                   [](const auto& a, const auto& b) { return a.trial.score < b.trial.score; });
  // A row's elements share the errors of its scores: together they count as one.
  const double width = static_cast<double>(screen.evaluator().width());
  const double rms = accepted.front().trial.distance.rms;
  const double noise = width * std::max(rms * rms, 0.05);
  std::vector<Explanation> equal;
  for (const Explanation& other : accepted) {
    const Contest contest = screen.contest(accepted.front().trial, other.trial);
    const double worse = contest.difference * contest.difference * (1 - 2 * contest.place);
    if (indistinguishable(contest, ran_in) || worse < kChance * noise) equal.push_back(other);
  }
  std::stable_sort(equal.begin(), equal.end(),
                   [](const auto& a, const auto& b) { return a.rank() < b.rank(); });
  return equal;
}

std::vector<Explanation> one_a_class(std::vector<Explanation> equal) {
  // One a class, and no fitted constant where a specific number of the same stage does as well.
  std::vector<Explanation> named;
  for (Explanation& explanation : equal) {
    const bool fitted = explanation.fitted();
    const bool more_parts = !named.empty() && explanation.parts.size() > named.front().parts.size();
    const bool superfluous =
        more_parts || std::any_of(named.begin(), named.end(), [&](const Explanation& other) {
          return other.ids() == explanation.ids() ||
                 (fitted && !other.fitted() && (other.touches() & explanation.touches()) != 0 &&
                  explanation.touches() != stage::tail);
        });
    if (!superfluous) named.push_back(std::move(explanation));
  }
  return named;
}

Cause cause_of(const Explanation& explanation) {
  Cause cause{explanation.ids(), explanation.text(), {}, explanation.trial.distance, false};
  for (const Hypothesis& part : explanation.parts) {
    cause.parameters.insert(part.parameters.begin(), part.parameters.end());
  }
  cause.policy = cause.ids == std::vector<std::string>{"M6"};
  return cause;
}

}  // namespace qkv
