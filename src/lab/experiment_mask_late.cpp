#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "lab/experiment_mask_parts.h"
#include "lab/hand_written.h"
#include "lab/text_style.h"

namespace qkv::lab {
namespace {

constexpr Index kTokens = 12;
constexpr Index kWidth = 16;
constexpr double kRounding = 1e-12;

struct Sample {
  Tensor<double, 4> query;
  Tensor<double, 4> key;
  Tensor<double, 4> value;
  Tensor<bool, 4> future;  ///< [1,1,T,T], true above the diagonal
};

Sample draw(std::uint64_t seed) {
  NormalNumbers numbers(seed);
  const Extents<4> shape = {1, 1, kTokens, kWidth};
  Sample sample{numbers.tensor<double, 4>(shape), numbers.tensor<double, 4>(shape),
                numbers.tensor<double, 4>(shape), Tensor<bool, 4>({1, 1, kTokens, kTokens})};
  for (Index t = 0; t < kTokens; ++t) {
    for (Index s = t + 1; s < kTokens; ++s) sample.future(0, 0, t, s) = true;
  }
  return sample;
}

HandWrittenResults late(const Sample& sample, MaskedBy masked_by) {
  return attend_by_hand({.query = sample.query.view(),
                         .key = sample.key.view(),
                         .value = sample.value.view(),
                         .hides = std::as_const(sample.future).view(),
                         .masked_by = masked_by});
}

AttentionResults early(const Sample& sample) {
  return attend({.query = sample.query.view(),
                 .key = sample.key.view(),
                 .value = sample.value.view(),
                 .mask = Mask::causal()});
}

/// How far the context of all rows but the last moves when the last key and value change: they are in everybody's future.
template <class Attend>
double influence_of_the_future(const Sample& sample, Attend context_of) {
  Sample changed = sample;
  for (Index d = 0; d < kWidth; ++d) {
    changed.key(0, 0, kTokens - 1, d) += 1;
    changed.value(0, 0, kTokens - 1, d) += 1;
  }
  const Tensor<double, 4> before = context_of(sample);
  const Tensor<double, 4> after = context_of(changed);
  double largest = 0;
  for (Index t = 0; t + 1 < kTokens; ++t) {
    for (Index d = 0; d < kWidth; ++d) {
      largest = std::max(largest, std::fabs(after(0, 0, t, d) - before(0, 0, t, d)));
    }
  }
  return largest;
}

struct LateRow {
  Text name;
  Tensor<double, 4> weights;
  double smallest_sum = 0;
  double mean_sum = 0;
  double context_error = 0;  ///< relative to the mask before the softmax
  double influence = 0;
};

LateRow make_row(Text name, Tensor<double, 4> weights, double context_error, double influence) {
  LateRow row{std::move(name), std::move(weights), 1, 0, context_error, influence};
  for (Index t = 0; t < kTokens; ++t) {
    double sum = 0;
    for (Index s = 0; s < kTokens; ++s) sum += row.weights(0, 0, t, s);
    row.smallest_sum = std::min(row.smallest_sum, sum);
    row.mean_sum += sum / static_cast<double>(kTokens);
  }
  return row;
}

std::vector<LateRow> measure(const Sample& sample) {
  const AttentionResults right = early(sample);
  const auto by_hand = [&](Text name, MaskedBy masked_by) {
    const HandWrittenResults results = late(sample, masked_by);
    const double error = relative_difference(results.context.elements(), right.context.elements());
    const double influence = influence_of_the_future(
        sample, [&](const Sample& one) { return late(one, masked_by).context; });
    return make_row(std::move(name), results.weights, error, influence);
  };
  std::vector<LateRow> rows;
  rows.push_back(make_row(
      {"before the softmax", "softmax 之前"}, right.weights, 0,
      influence_of_the_future(sample, [](const Sample& one) { return early(one).context; })));
  rows.push_back(by_hand({"after it", "softmax 之后"}, MaskedBy::Multiplying));
  rows.push_back(by_hand({"after it, rows divided by their sums", "softmax 之后，再按行归一"},
                         MaskedBy::Renormalizing));
  return rows;
}

Table late_table(const std::vector<LateRow>& rows) {
  Table table{
      "late",
      {"A causal mask before and after the softmax", "因果 mask 加在 softmax 之前与之后"},
      {{"mask", {"mask", "mask 的位置"}, {}},
       {"smallest_sum", {"smallest row sum", "最小的行和"}, {}},
       {"mean_sum", {"mean row sum", "平均行和"}, {}},
       {"context_error",
        {"error of the context", "输出误差"},
        {"of its largest entry", "相对最大元素"}},
       {"influence",
        {"influence of the last token on those before it", "最后一个 token 对之前各行的影响"},
        {}}},
      {}};
  for (const LateRow& row : rows) {
    const auto number = [](double value) { return Measured{value, {}, {}}; };
    table.rows.push_back({row.name, number(row.smallest_sum), number(row.mean_sum),
                          number(row.context_error), number(row.influence)});
  }
  return table;
}

HeatMaps late_maps(const std::vector<LateRow>& rows) {
  HeatMaps maps;
  maps.key = "late";
  maps.title = {"Weights with the causal mask before and after the softmax",
                "因果 mask 在 softmax 前后的权重"};
  for (const LateRow& row : rows) {
    maps.variants.push_back(heat_map_variant(row.name, row.weights.view(), Mask::causal()));
  }
  maps.predict = {"The mask is multiplied in after the softmax. Which rows are too pale?",
                  "如果在 softmax 之后才乘 mask，哪些行会偏淡？"};
  maps.reveal = {
      "All but the last: each has given away the weight of its future, the early ones most as a "
      "rule. "
      "Dividing by the sums brings it back.",
      "除最后一行外都偏淡：每一行分给未来的权重都丢了，通常越靠前丢得越多。按行归一后才恢复。"};
  return maps;
}

std::vector<Effect> late_effects(const std::vector<LateRow>& rows) {
  const LateRow& before = rows[0];
  const LateRow& after = rows[1];
  const LateRow& divided = rows[2];
  return {
      {"late_mask_loses_weight",
       {"Multiplied in after the softmax, the mask leaves rows that do not sum to 1.",
        "softmax 之后再乘 mask，行和不再为 1。"},
       {fmt::format("Row sums down to {}, {} on average; the context is off by {}.",
                    short_number(after.smallest_sum), short_number(after.mean_sum),
                    percent(after.context_error)),
        fmt::format("行和最小 {}，平均 {}；输出误差 {}。", short_number(after.smallest_sum),
                    short_number(after.mean_sum), percent(after.context_error))},
       after.smallest_sum < 0.9 && std::fabs(before.smallest_sum - 1) < kRounding &&
           after.context_error > 0.01},
      {"renormalised_is_equal",
       {"Dividing each row by what is left is the same as a mask before the softmax – while "
        "something is left.",
        "再按行归一等价于前置 mask——前提是行里还剩下权重。"},
       {fmt::format("The context differs by {} of its largest entry.",
                    short_number(divided.context_error)),
        fmt::format("输出与前置 mask 相差 {}（相对最大元素）。",
                    short_number(divided.context_error))},
       divided.context_error < kRounding},
      {"late_mask_sees_the_future",
       {"After the softmax, the future has already been counted: it changes what comes before it.",
        "softmax 之后才屏蔽，未来已参与归一化，会改变前面各行。"},
       {fmt::format("Changing the last token moves earlier rows by {}; with the mask before the "
                    "softmax by exactly {}.",
                    short_number(after.influence), short_number(before.influence)),
        fmt::format("改动最后一个 token，前面各行变化 {}；前置 mask 时恰为 {}。",
                    short_number(after.influence), short_number(before.influence))},
       after.influence > 0.01 && before.influence == 0}};
}

}  // namespace

void add_late_masks(const ExperimentOptions& options, Experiment& experiment) {
  report(options, "before and after the softmax", 0.3);
  const std::vector<LateRow> rows = measure(draw(options.seed));
  experiment.tables.push_back(late_table(rows));
  experiment.heat_maps.push_back(late_maps(rows));
  for (Effect& effect : late_effects(rows)) experiment.effects.push_back(std::move(effect));
}

}  // namespace qkv::lab
