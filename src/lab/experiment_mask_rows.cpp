#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "lab/experiment_mask_parts.h"
#include "lab/hand_written.h"
#include "lab/text_style.h"

namespace qkv::lab {
namespace {

constexpr Index kTokens = 8;
constexpr Index kWidth = 8;
constexpr Index kPadded = 3;  // on the left
constexpr Index kPrefix = 3;

Mask keep_right(Index padded) {
  Tensor<bool, 2> keep({1, kTokens});
  for (Index s = padded; s < kTokens; ++s) keep(0, s) = true;
  return Mask::key_padding(std::as_const(keep).view(), Polarity::Keep);
}

struct NamedMask {
  std::string key;
  Text name;
  Mask mask;
};

std::vector<NamedMask> masks() {
  return {{"none", {"none", "无 mask"}, {}},
          {"causal", {"causal", "因果"}, Mask::causal()},
          {"prefix",
           {fmt::format("causal with a prefix of {}", kPrefix),
            fmt::format("因果，前缀长 {}", kPrefix)},
           Mask::prefix_causal({kPrefix})},
          {"padded",
           {fmt::format("causal, {} padded on the left", kPadded),
            fmt::format("因果，左侧补齐 {} 个", kPadded)},
           Mask::causal() & keep_right(kPadded)}};
}

struct Sample {
  Tensor<double, 4> query;
  Tensor<double, 4> key;
  Tensor<double, 4> value;
  Tensor<double, 4> context_gradient;  ///< 0 in the rows of padding: nobody reads them
};

Sample draw(std::uint64_t seed) {
  NormalNumbers numbers(seed);
  const Extents<4> shape = {1, 1, kTokens, kWidth};
  const auto tensor = [&] { return numbers.tensor<double, 4>(shape); };
  Sample sample{tensor(), tensor(), tensor(), tensor()};
  std::fill_n(sample.context_gradient.data(), kPadded * kWidth, 0.0);
  return sample;
}

/// dV = Pᵀ·dO, as an autograd computes it.
Tensor<double, 4> value_gradient(const Tensor<double, 4>& weights,
                                 const Tensor<double, 4>& context_gradient) {
  Tensor<double, 4> gradient(context_gradient.shape());
  for (Index t = 0; t < kTokens; ++t) {
    for (Index s = 0; s < kTokens; ++s) {
      for (Index d = 0; d < kWidth; ++d) {
        gradient(0, 0, s, d) += weights(0, 0, t, s) * context_gradient(0, 0, t, d);
      }
    }
  }
  return gradient;
}

double part_of_nan(std::span<const double> elements) {
  const auto count =
      std::count_if(elements.begin(), elements.end(), [](double x) { return std::isnan(x); });
  return static_cast<double>(count) / static_cast<double>(elements.size());
}

/// What rows of padding give, and what becomes of the gradient of the values.
struct BlindRow {
  Text name;
  double nan_in_context = 0;
  double padding_weight = 0;  ///< that rows of padding give to keys of padding
  double nan_in_gradient = 0;
};

double largest_hidden_weight(const Tensor<double, 4>& weights) {
  double largest = 0;
  for (Index t = 0; t < kPadded; ++t) {
    for (Index s = 0; s < kPadded; ++s) {
      const double weight = weights(0, 0, t, s);
      if (std::isnan(weight) || weight > largest) largest = weight;
    }
  }
  return largest;
}

BlindRow blind_by_hand(const Sample& sample, Text name, double fill) {
  const BoundMask bound = masks().back().mask.bind("lab", {1, 1, kTokens, kTokens});
  Tensor<bool, 4> hides({1, 1, kTokens, kTokens});
  for (Index t = 0; t < kTokens; ++t) {
    for (Index s = 0; s < kTokens; ++s) hides(0, 0, t, s) = !bound.visible(0, 0, t, s);
  }
  const HandWrittenResults results = attend_by_hand({.query = sample.query.view(),
                                                     .key = sample.key.view(),
                                                     .value = sample.value.view(),
                                                     .hides = std::as_const(hides).view(),
                                                     .fill = fill});
  const Tensor<double, 4> gradient = value_gradient(results.weights, sample.context_gradient);
  return {std::move(name), part_of_nan(results.context.elements()),
          largest_hidden_weight(results.weights), part_of_nan(gradient.elements())};
}

BlindRow blind_in_engine(const Sample& sample, const engine::Options& options) {
  const AttentionInputs<double> inputs{.query = sample.query.view(),
                                       .key = sample.key.view(),
                                       .value = sample.value.view(),
                                       .mask = masks().back().mask};
  const Extents<4> shape = sample.query.shape();
  Tensor<double, 4> context(shape);
  Tensor<double, 4> weights({1, 1, kTokens, kTokens});
  Tensor<double, 3> log_sum_exp({1, 1, kTokens});
  engine::forward(
      inputs,
      {.context = context.view(), .weights = weights.view(), .log_sum_exp = log_sum_exp.view()},
      options);
  Tensor<double, 4> query_gradient(shape);
  Tensor<double, 4> key_gradient(shape);
  Tensor<double, 4> gradient(shape);
  engine::backward(
      inputs,
      {.context = std::as_const(context).view(), .log_sum_exp = std::as_const(log_sum_exp).view()},
      {.context = sample.context_gradient.view()},
      {.query = query_gradient.view(), .key = key_gradient.view(), .value = gradient.view()},
      options);
  const auto nan = [](const Tensor<double, 4>& tensor) { return part_of_nan(tensor.elements()); };
  return {{"the library", "本库"},
          nan(context),
          largest_hidden_weight(weights),
          std::max({nan(query_gradient), nan(key_gradient), nan(gradient)})};
}

Table blind_table(const std::vector<BlindRow>& rows) {
  Table table{
      "blind_rows",
      {fmt::format(
           "A causal sample of {} tokens, {} of them padding on the left, whose rows see nothing",
           kTokens, kPadded),
       fmt::format("因果样本共 {} 个 token，左侧 {} 个是补齐，它们的行什么都看不见", kTokens,
                   kPadded)},
      {{"implementation", {"implementation", "实现"}, {}},
       {"nan_in_context", {"part of the context that is NaN", "输出中 NaN 的比例"}, {}},
       {"padding_weight", {"weight of padding in rows of padding", "补齐行对补齐 key 的权重"}, {}},
       {"nan_in_gradient",
        {"part of the values' gradient that is NaN", "value 梯度中 NaN 的比例"},
        {}}},
      {}};
  for (const BlindRow& row : rows) {
    const auto number = [](double value) { return Measured{value, {}, {}}; };
    table.rows.push_back({row.name, number(row.nan_in_context), number(row.padding_weight),
                          number(row.nan_in_gradient)});
  }
  return table;
}

Index visible_keys(const BoundMask& mask, Index t) {
  Index count = 0;
  for (Index s = 0; s < kTokens; ++s) count += mask.visible(0, 0, t, s) ? 1 : 0;
  return count;
}

}  // namespace

void add_blind_rows(const ExperimentOptions& options, Experiment& experiment) {
  report(options, "rows that see nothing", 0.6);
  const Sample sample = draw(options.seed);
  const std::vector<BlindRow> rows = {
      blind_by_hand(sample, {"by hand, −∞", "手写，−∞"}, -std::numeric_limits<double>::infinity()),
      blind_by_hand(sample, {"by hand, −1e9", "手写，−1e9"}, -1e9),
      blind_in_engine(sample, engine_options(options))};
  experiment.tables.push_back(blind_table(rows));
  const double share = static_cast<double>(kPadded) / static_cast<double>(kTokens);
  experiment.effects.push_back(
      {"nan_poisons_the_gradient",
       {"Rows that nobody reads poison everybody's gradient when they are NaN: 0·NaN is NaN.",
        "没人读的行一旦是 NaN，就会污染所有人的梯度：0·NaN 还是 NaN。"},
       {fmt::format("With −∞ by hand {} of the context is NaN, and {} of the values' gradient; in "
                    "the library {} and {}.",
                    percent(rows[0].nan_in_context), percent(rows[0].nan_in_gradient),
                    percent(rows[2].nan_in_context), percent(rows[2].nan_in_gradient)),
        fmt::format("手写 −∞ 时输出有 {} 是 NaN，value 的梯度有 {} 是 NaN；本库分别为 {} 和 {}。",
                    percent(rows[0].nan_in_context), percent(rows[0].nan_in_gradient),
                    percent(rows[2].nan_in_context), percent(rows[2].nan_in_gradient))},
       rows[0].nan_in_context == share && rows[0].nan_in_gradient == 1 &&
           rows[2].nan_in_context == 0 && rows[2].nan_in_gradient == 0});
}

void add_visible_keys(const ExperimentOptions& options, Experiment& experiment) {
  report(options, "causal and prefix", 0.9);
  const Sample sample = draw(options.seed);
  Table table{"visible_keys",
              {fmt::format("How many of {} keys a query sees", kTokens),
               fmt::format("每个 query 能看见 {} 个 key 中的几个", kTokens)},
              {{"query", {"query", "query"}, {}}},
              {}};
  HeatMaps maps;
  maps.key = "masks";
  maps.title = {"Weights under four masks", "四种 mask 下的权重"};
  std::vector<BoundMask> bound;
  for (const NamedMask& one : masks()) {
    table.columns.push_back({one.key, one.name, {}});
    bound.push_back(one.mask.bind("lab", {1, 1, kTokens, kTokens}));
    const AttentionResults results = attend({.query = sample.query.view(),
                                             .key = sample.key.view(),
                                             .value = sample.value.view(),
                                             .mask = one.mask});
    maps.variants.push_back(heat_map_variant(one.name, results.weights.view(), one.mask));
  }
  for (Index t = 0; t < kTokens; ++t) {
    std::vector<Cell> row = {t};
    for (const BoundMask& mask : bound) row.emplace_back(visible_keys(mask, t));
    table.rows.push_back(std::move(row));
  }
  experiment.effects.push_back(
      {"prefix_opens_the_first_rows",
       {"A causal query t sees t + 1 keys; a prefix is open to every query.",
        "因果 mask 下第 t 个 query 看见 t + 1 个 key；前缀对所有 query 可见。"},
       {fmt::format("Query 0 sees {} key under the causal mask and {} with a prefix of {}.",
                    visible_keys(bound[1], 0), visible_keys(bound[2], 0), kPrefix),
        fmt::format("第 0 个 query 在因果 mask 下看见 {} 个 key，前缀长 {} 时看见 {} 个。",
                    visible_keys(bound[1], 0), kPrefix, visible_keys(bound[2], 0))},
       visible_keys(bound[1], 0) == 1 && visible_keys(bound[2], 0) == kPrefix});
  experiment.tables.push_back(std::move(table));
  experiment.heat_maps.push_back(std::move(maps));
}

}  // namespace qkv::lab
