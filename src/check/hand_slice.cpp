#include "check/hand_slice.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "reference/head.h"

namespace qkv {
namespace {

struct Element {
  double expected = 0;
  double got = 0;
  double variance = 0;
};

template <int Rank>
Element element(const Tensor<double, Rank>& got, const Rounded<Rank>& expected,
                const Extents<Rank>& at) {
  const auto read = [&](const Tensor<double, Rank>& tensor) {
    return std::apply([&](auto... index) { return tensor(index...); }, at);
  };
  return {read(expected.value), read(got), read(expected.variance)};
}

Element element_of(const Dump& dump, const Expected& expected, const std::string& name,
                   const Extents<4>& at) {
  const auto [b, h, t, d] = at;
  if (name == "out") {
    return dump.output ? element<3>(*dump.output, *expected.output, {b, t, d})
                       : element<4>(*dump.context, expected.context, at);
  }
  if (name == "out2") {
    return dump.second_output ? element<3>(*dump.second_output, *expected.output, {b, t, d})
                              : element<4>(*dump.second_context, expected.context, at);
  }
  if (name == "q") return element<4>(dump.query, expected.inputs->query, at);
  if (name == "k") return element<4>(dump.key, expected.inputs->key, at);
  if (name == "v") return element<4>(dump.value, expected.inputs->value, at);
  if (name == "weights") return element<4>(*dump.weights, *expected.weights, at);
  if (name == "scores") return element<4>(*dump.scores, *expected.scores, at);
  if (name == "dq") return element<4>(*dump.query_gradient, *expected.query_gradient, at);
  if (name == "dk") return element<4>(*dump.key_gradient, *expected.key_gradient, at);
  if (name == "dv") return element<4>(*dump.value_gradient, *expected.value_gradient, at);
  Element lse = element<3>(*dump.log_sum_exp, *expected.log_sum_exp, {b, h, t});
  if (dump.log_sum_exp_base2) {
    lse.expected /= std::log(2.0);
    lse.variance /= std::log(2.0) * std::log(2.0);
  }
  return lse;
}

/// Of the elements that are far away, the first one of the row that sees the fewest keys: the easiest to follow.
Extents<4> easiest_element(const TensorVerdict& tensor, const AttentionPlan& plan) {
  const auto& units = tensor.map.units;
  if (tensor.beyond == 0 || units.shape(2) != plan.shape.queries) return tensor.largest_at;
  const double enough = std::max(tensor.largest_allowed, tensor.largest_units / 10);
  Extents<4> easiest = tensor.largest_at;
  Index fewest = plan.shape.keys + 1;
  for (Index b = 0; b < units.shape(0); ++b) {
    for (Index h = 0; h < units.shape(1); ++h) {
      for (Index t = 0; t < units.shape(2); ++t) {
        Index column = 0;
        while (column < units.shape(3) &&
               !(static_cast<double>(units(b, h, t, column)) >= enough)) {
          ++column;
        }
        if (column == units.shape(3)) continue;
        Index keys = 0;
        for (Index s = 0; s < plan.shape.keys && keys < fewest; ++s) {
          keys += plan.mask.visible(b, h, t, s) ? 1 : 0;
        }
        if (keys >= fewest) continue;
        fewest = keys;
        easiest = {b, h, t, column};
      }
    }
  }
  return easiest;
}

}  // namespace

HandSlice hand_slice(const Dump& dump, const Verdict& verdict, const TensorVerdict& tensor,
                     std::size_t most_keys) {
  const bool per_query =
      tensor.name != "dk" && tensor.name != "dv" && tensor.name != "k" && tensor.name != "v";
  HandSlice slice;
  slice.tensor = tensor.name;
  const auto inputs = oracle_inputs(dump, verdict.expected.entering);
  const AttentionPlan plan = validate_inputs("check", inputs);
  slice.at = per_query ? easiest_element(tensor, plan) : tensor.largest_at;
  const Element element = element_of(dump, verdict.expected, tensor.name, slice.at);
  slice.expected = element.expected;
  slice.got = element.got;
  slice.unit = std::sqrt(element.variance);

  const bool per_value = dump.context && (tensor.name == "out" || tensor.name == "out2");
  slice.sample = slice.at[0];
  slice.head = per_query ? slice.at[1] : slice.at[1] * std::max<Index>(dump.shape.group(), 1);
  slice.row = per_query ? slice.at[2] : dump.shape.queries - 1;
  slice.column = per_value ? slice.at[3] : 0;

  slice.scale = plan.scale;
  reference::Head head(plan.shape);
  reference::HeadScores scores(plan.shape);
  reference::load_head(inputs, plan, slice.sample, slice.head, head);
  reference::match(inputs, plan, head, slice.row, scores);
  double weights = 0;
  for (Index s = 0; s < plan.shape.keys; ++s) {
    if (!scores.visible(slice.row, s)) {
      ++slice.hidden;
      continue;
    }
    HandKey key;
    key.key = s;
    key.product = reference::dot(head.query, slice.row, head.key, s);
    key.score = reference::score(inputs, plan, head, slice.row, s);
    key.weight = scores.weights(slice.row, s);
    if (plan.shape.value_width > 0) key.value = head.value(s, slice.column);
    weights += key.weight;
    slice.context += key.weight * key.value;
    slice.keys.push_back(key);
  }
  if (!slice.keys.empty() && dump.sink) slice.sink_weight = 1 - weights;
  if (slice.keys.size() <= most_keys) return slice;
  std::stable_sort(slice.keys.begin(), slice.keys.end(),
                   [](const HandKey& a, const HandKey& b) { return a.weight > b.weight; });
  for (std::size_t i = most_keys; i < slice.keys.size(); ++i) {
    slice.other_weight += slice.keys[i].weight;
    slice.other_sum += slice.keys[i].weight * slice.keys[i].value;
  }
  slice.others = static_cast<Index>(slice.keys.size() - most_keys);
  slice.keys.resize(most_keys);
  std::sort(slice.keys.begin(), slice.keys.end(),
            [](const HandKey& a, const HandKey& b) { return a.key < b.key; });
  return slice;
}

}  // namespace qkv
