// From scores to weights: the softmax, and what is done instead of it and after it.
#include <algorithm>
#include <cmath>
#include <limits>

#include "check/variant_scores.h"

namespace qkv {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

}  // namespace

void Scorer::weigh_empty(QueryScores& query) const {
  const std::size_t count = query.score.size();
  query.weight.assign(count, 0.0);
  const bool of_rest = policy_ == EmptyPolicy::MeanOfRest || policy_ == EmptyPolicy::SoftmaxOfRest;
  const bool some_rest = std::any_of(query.visibility.begin(), query.visibility.end(),
                                     [](const KeyVisibility& key) { return key.rest; });
  const auto takes_part = [&](std::size_t s) {
    return !of_rest || !some_rest || query.visibility[s].rest;
  };
  double sum = 0;
  double largest = -kInfinity;
  switch (policy_) {
    case EmptyPolicy::NaN:
      query.weight.assign(count, kNaN);
      return;
    case EmptyPolicy::Mean:
    case EmptyPolicy::MeanOfRest:
      for (std::size_t s = 0; s < count; ++s) query.weight[s] = takes_part(s) ? 1.0 : 0.0;
      break;
    case EmptyPolicy::Softmax:
    case EmptyPolicy::SoftmaxOfRest:
    case EmptyPolicy::AddedLowest:
    case EmptyPolicy::AddedLowestFloat32:
      for (std::size_t s = 0; s < count; ++s) {
        if (takes_part(s)) largest = std::max(largest, query.unmasked[s]);
      }
      for (std::size_t s = 0; s < count; ++s) {
        if (takes_part(s)) query.weight[s] = std::exp(query.unmasked[s] - largest);
      }
      break;
    default:
      return;
  }
  for (const double weight : query.weight) sum += weight;
  for (double& weight : query.weight) weight /= sum;
}

void Scorer::weigh(Index h, QueryScores& query) const {
  const SoftmaxVariant& v = variant_.softmax;
  const std::size_t count = query.score.size();
  const bool sink = dump_.sink.has_value() && !v.sink_missing;
  const double sink_score = sink ? (*dump_.sink)(h)*v.exponent : -kInfinity;
  query.log_sum_exp = sink_score;
  if (query.empty && !sink && v.tail == 0) {
    weigh_empty(query);
    for (double& weight : query.weight) weight *= v.weight_factor;
    return;
  }
  if (query.lost && !sink && v.tail == 0) {
    query.weight.assign(count, kNaN);
    query.log_sum_exp = kNaN;
    return;
  }
  double largest = sink_score;
  for (const double score : query.score) largest = std::max(largest, score);
  if (v.tail > 0) largest = std::max(largest, 0.0);
  double sum = sink ? std::exp(sink_score - largest) : 0.0;
  if (v.tail > 0) sum += v.tail * std::exp(-largest);
  query.weight.resize(count);
  for (std::size_t s = 0; s < count; ++s) {
    query.weight[s] = query.score[s] == -kInfinity ? 0.0 : std::exp(query.score[s] - largest);
    sum += query.weight[s];
  }
  for (std::size_t s = 0; s < count; ++s) {
    if (query.score[s] == -kInfinity && !std::isnan(sum)) continue;
    query.weight[s] *= v.weight_factor / sum;
    if (query.visibility[s].erased) query.weight[s] = 0;
  }
  query.log_sum_exp = largest + std::log(sum);
}

void Scorer::weigh_by(const std::vector<double>& norm, Index others, QueryScores& query) const {
  const std::size_t count = query.score.size();
  query.weight.assign(count, 0.0);
  for (std::size_t s = 0; s < count; ++s) {
    double& weight = query.weight[s];
    if (norm[s] == -kInfinity) {
      // Nothing along the axis: a slice as empty as a row can be.
      if (policy_ == EmptyPolicy::NaN) weight = kNaN;
      if (policy_ == EmptyPolicy::Mean) weight = 1 / static_cast<double>(others);
    } else if (query.score[s] != -kInfinity) {
      weight = std::exp(query.score[s] - norm[s]);
    }
    weight *= variant_.softmax.weight_factor;
    if (query.visibility[s].erased) weight = 0;
  }
}

}  // namespace qkv
