#include <algorithm>
#include <cmath>
#include <functional>

#include "base/rounding.h"
#include "check/diagnosis_parts.h"
#include "check/expected_head.h"
#include "qkv/rotary.h"

namespace qkv {
namespace {

/// What a wrong backward pass does.
struct BackwardVariant {
  bool row_sum_missing = false;
  bool scale_missing = false;
  bool stale_sample = false;  ///< weights of the last sample
  bool stale_head = false;    ///< weights of the last head
  enum class Group : std::uint8_t { Sum, First, Last, Mean } group = Group::Sum;
};

struct Candidate {
  const char* id;
  const char* text;
  BackwardVariant variant;
};

/// Gradients of the query heads of one key/value head.
struct GroupGradients {
  Tensor<double, 4> query;  // [1,g,T,Dk]
  Tensor<double, 4> key;    // [1,1,S,Dk]
  Tensor<double, 4> value;  // [1,1,S,Dv]
};

class Backward {
 public:
  explicit Backward(const Dump& dump) : dump_(dump), evaluator_(dump, 0), heads_(dump) {}

  GroupGradients of_group(const BackwardVariant& variant, Index b, Index kv_head) const {
    const AttentionShape& shape = dump_.shape;
    const Index group = shape.group();
    GroupGradients result{Tensor<double, 4>({1, group, shape.queries, shape.key_width}),
                          Tensor<double, 4>({1, 1, shape.keys, shape.key_width}),
                          Tensor<double, 4>({1, 1, shape.keys, shape.value_width})};
    for (Index g = 0; g < group; ++g) {
      using Group = BackwardVariant::Group;
      const bool counts = variant.group == Group::Sum || variant.group == Group::Mean ||
                          (variant.group == Group::First ? g == 0 : g == group - 1);
      const double share = !counts                        ? 0.0
                           : variant.group == Group::Mean ? 1 / static_cast<double>(group)
                                                          : 1.0;
      add_head(variant, b, kv_head * group + g, g, share, result);
    }
    unturn(b, result);
    return result;
  }

 private:
  void add_head(const BackwardVariant& variant, Index b, Index h, Index g, double share,
                GroupGradients& result) const {
    const AttentionShape& shape = dump_.shape;
    const Variant none;
    const Index kv = h / shape.group();
    const auto q = heads_.load(none, VariantHeads::key(none, kQuery), kQuery, b, h);
    const auto k = heads_.load(none, VariantHeads::key(none, kKey), kKey, b, kv);
    const auto v = heads_.load(none, VariantHeads::key(none, kValue), kValue, b, kv);
    const Index source_b = variant.stale_sample ? shape.batch - 1 : b;
    const Index source_h = variant.stale_head ? shape.heads - 1 : h;
    std::vector<double> ds(static_cast<std::size_t>(shape.keys));
    for (Index t = 0; t < shape.queries; ++t) {
      const std::vector<double> p = evaluator_.weights(none, {source_b, source_h, t});
      const double* upstream = &(*dump_.context_gradient)(b, h, t, 0);
      double mean = 0;
      for (Index s = 0; s < shape.keys; ++s) {
        const auto j = static_cast<std::size_t>(s);
        ds[j] = 0;
        if (p[j] == 0) continue;
        for (Index d = 0; d < shape.value_width; ++d) {
          ds[j] += upstream[d] * v->row(s)[d];
          result.value(0, 0, s, d) += share * p[j] * upstream[d];
        }
        mean += p[j] * ds[j];
      }
      if (variant.row_sum_missing) mean = 0;
      for (Index s = 0; s < shape.keys; ++s) {
        const auto j = static_cast<std::size_t>(s);
        if (p[j] == 0) continue;
        double slope = p[j] * (ds[j] - mean) * (variant.scale_missing ? 1.0 : dump_.scale);
        if (dump_.softcap) {
          double product = 0;
          for (Index d = 0; d < shape.key_width; ++d) product += q->row(t)[d] * k->row(s)[d];
          const double tanh = std::tanh(dump_.scale * product / *dump_.softcap);
          slope *= 1 - tanh * tanh;
        }
        for (Index d = 0; d < shape.key_width; ++d) {
          result.query(0, g, t, d) += slope * k->row(s)[d];
          result.key(0, 0, s, d) += share * slope * q->row(t)[d];
        }
      }
    }
  }

  /// Back to before rotary positions.
  void unturn(Index b, GroupGradients& gradients) const {
    if (!dump_.rotary) return;
    const DumpRotary& rotary = *dump_.rotary;
    const auto positions = [&](const Tensor<Index, 2>& all) {
      const Index row = all.shape(0) == 1 ? 0 : b;
      return all.view().slice(0, row, row + 1);
    };
    apply_rotary_backward<double>(gradients.query.view(), positions(rotary.query_positions),
                                  rotary.options, gradients.query.view());
    apply_rotary_backward<double>(gradients.key.view(), positions(rotary.key_positions),
                                  rotary.options, gradients.key.view());
  }

  const Dump& dump_;
  Evaluator evaluator_;
  VariantHeads heads_;
};

/// Largest of the three relative errors of one group.
double relative_error(const Dump& dump, const GroupGradients& got, Index b, Index kv_head) {
  const Index group = dump.shape.group();
  const auto error = [](const Tensor<double, 4>& values, const double* recorded) {
    double square = 0;
    double total = 0;
    for (const double value : values.elements()) {
      const double difference = value - *recorded;
      square += difference * difference;
      total += *recorded * *recorded;
      ++recorded;
    }
    return total > 0 ? std::sqrt(square / total) : std::sqrt(square);
  };
  return std::max({error(got.query, &(*dump.query_gradient)(b, kv_head * group, 0, 0)),
                   error(got.key, &(*dump.key_gradient)(b, kv_head, 0, 0)),
                   error(got.value, &(*dump.value_gradient)(b, kv_head, 0, 0))});
}

/// What rounding makes of the gradients of some heads, relative to them.
double relative_rounding(const Rounded<4>& gradient, Index b, Index first_head, Index heads) {
  double variance = 0;
  double total = 0;
  for (Index h = first_head; h < first_head + heads; ++h) {
    for (Index t = 0; t < gradient.value.shape(2); ++t) {
      const auto values = row_of(gradient.value, b, h, t);
      const auto variances = row_of(gradient.variance, b, h, t);
      for (std::size_t d = 0; d < values.size(); ++d) {
        if (!std::isfinite(variances[d])) continue;
        variance += variances[d];
        total += values[d] * values[d];
      }
    }
  }
  return total > 0 ? std::sqrt(variance / total) : 0;
}

double relative_rounding(const Expected& expected, const Dump& dump, Index b, Index kv_head) {
  const Index group = dump.shape.group();
  return std::max({relative_rounding(*expected.query_gradient, b, kv_head * group, group),
                   relative_rounding(*expected.key_gradient, b, kv_head, 1),
                   relative_rounding(*expected.value_gradient, b, kv_head, 1)});
}

}  // namespace

std::vector<Cause> causes_of_gradients(const Dump& dump) {
  if (!dump.context_gradient || !dump.query_gradient || !dump.key_gradient ||
      !dump.value_gradient || dump.qk_norm) {
    return {};
  }
  using Group = BackwardVariant::Group;
  const Candidate candidates[] = {
      {"", "", {}},
      {"G2", "dk and dv are those of the first head of a group", {.group = Group::First}},
      {"G2", "dk and dv are those of the last head of a group", {.group = Group::Last}},
      {"G2", "dk and dv are the mean over a group", {.group = Group::Mean}},
      {"B1", "dS lacks the row sum: dS = P*dP", {.row_sum_missing = true}},
      {"B1", "the scale is missing in dq and dk", {.scale_missing = true}},
      {"B1", "the weights are those of the last sample", {.stale_sample = true}},
      {"B1", "the weights are those of the last head", {.stale_head = true}},
  };
  const Backward backward(dump);
  const AttentionShape& shape = dump.shape;
  std::vector<std::pair<Index, Index>> groups{{0, 0}};
  if (shape.batch * shape.kv_heads > 1) groups.emplace_back(shape.batch - 1, shape.kv_heads - 1);
  if (shape.batch > 1) groups.emplace_back(0, shape.kv_heads - 1);
  std::vector<double> errors;
  for (const Candidate& candidate : candidates) {
    double error = 0;
    for (const auto& [b, kv_head] : groups) {
      error = std::max(error, relative_error(dump, backward.of_group(candidate.variant, b, kv_head),
                                             b, kv_head));
    }
    errors.push_back(error);
  }
  const double roundoff = unit_roundoff(dump.ran_in);
  std::vector<Cause> causes;
  double best = errors[0];
  for (std::size_t i = 1; i < errors.size(); ++i) best = std::min(best, errors[i]);
  const double floor = 2 * roundoff;
  if (!(best < 0.8 * errors[0]) || errors[0] < floor) return causes;
  // Gradients are sums of differences: they lose more digits than what goes in, all of them where a row has one weight alone.
  double allowed = 200 * roundoff;
  if (best > allowed) {
    const Expected expected = expected_results(dump, dump.ran_in);
    for (const auto& [b, kv_head] : groups) {
      allowed = std::max(allowed, 3 * relative_rounding(expected, dump, b, kv_head));
    }
  }
  if (best > std::min(allowed, 0.05)) return causes;
  for (std::size_t i = 1; i < errors.size(); ++i) {
    if (errors[i] > std::max(1.15 * best, floor)) continue;
    const bool named = std::any_of(causes.begin(), causes.end(), [&](const Cause& cause) {
      return cause.ids.front() == candidates[i].id;
    });
    if (!named)
      causes.push_back({{candidates[i].id},
                        candidates[i].text,
                        {},
                        {errors[i] / roundoff, errors[i] / roundoff},
                        false});
  }
  return causes;
}

}  // namespace qkv
