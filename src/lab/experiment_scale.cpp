// §2: why logits are divided by √Dk.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "lab/experiment_parts.h"
#include "lab/experiment_runs.h"
#include "lab/experiment_scale_measure.h"
#include "lab/experiment_scale_tables.h"
#include "lab/experiment_scale_training.h"
#include "lab/text_style.h"

namespace qkv::lab {
namespace {

constexpr int kSeeds = 3;
constexpr Index kLargestWidth = 1024;
constexpr Index kShownTokens = 16;
constexpr double kVarianceTolerance = 0.05;
// The estimate of a product of two normal numbers, which correlated components come close to, scatters more.
constexpr double kGeneralTolerance = 0.1;

std::vector<Index> widths_of(const ExperimentOptions& options) {
  std::vector<Index> widths;
  for (Index width = 1; width <= kLargestWidth; width *= options.quick ? 4 : 2) {
    widths.push_back(width);
  }
  return widths;
}

/// The fewer components, the more the estimate scatters: its relative deviation is √((2 + 6/Dk)/pairs).
Index pairs_of(Index width, const ExperimentOptions& options) {
  return std::max<Index>(4096, 65536 / width) * (options.quick ? 1 : 4);
}

/// Variances of a kind of components and a width.
WidthRow variances(const Components& components, Index width, const ExperimentOptions& options) {
  std::vector<double> unscaled;
  std::vector<double> scaled;
  for (const std::uint64_t seed : seeds(options, kSeeds)) {
    const LogitVariance variance = logit_variance(
        {.components = components, .width = width, .pairs = pairs_of(width, options), .seed = seed},
        engine_options(options));
    unscaled.push_back(variance.unscaled);
    scaled.push_back(variance.scaled);
  }
  return {width, over_seeds(unscaled), over_seeds(scaled)};
}

std::vector<WidthRow> measure_widths(const ExperimentOptions& options) {
  std::vector<WidthRow> rows;
  const std::vector<Index> widths = widths_of(options);
  for (std::size_t i = 0; i < widths.size(); ++i) {
    report(options, fmt::format("variance of the logits, Dk = {}", widths[i]),
           0.25 * static_cast<double>(i) / static_cast<double>(widths.size()));
    rows.push_back(variances({}, widths[i], options));
  }
  return rows;
}

std::vector<DepartureRow> measure_departures(const ExperimentOptions& options) {
  const std::vector<std::pair<Text, Components>> kinds = {
      {{"mean 1 instead of 0", "均值为 1 而非 0"}, {.mean = 1}},
      {{"deviation 2 instead of 1", "标准差为 2 而非 1"}, {.deviation = 2}},
      {{"correlation 0.5 instead of 0", "分量间相关系数为 0.5 而非 0"}, {.correlation = 0.5}}};
  std::vector<DepartureRow> rows;
  for (const auto& [name, components] : kinds) {
    for (const Index width : {Index{64}, kLargestWidth}) {
      report(options, fmt::format("variance of the logits, {}, Dk = {}", name.english, width),
             0.25 + 0.025 * static_cast<double>(rows.size()));
      rows.push_back({name, width, components.dot_variance(width) / static_cast<double>(width),
                      variances(components, width, options).scaled});
    }
  }
  return rows;
}

std::map<std::string, Measured> saturation(Index width, std::optional<double> scale,
                                           const ExperimentOptions& options) {
  std::map<std::string, std::vector<double>> values;
  for (const std::uint64_t seed : seeds(options, kSeeds)) {
    const SoftmaxState state =
        softmax_state({.width = width, .tokens = kScaleTokens, .scale = scale, .seed = seed},
                      engine_options(options));
    values["entropy"].push_back(state.entropy);
    values["largest_weight"].push_back(state.largest_weight);
    values["gradient_norm"].push_back(state.gradient_norm);
    values["gradient_median"].push_back(state.gradient_median);
    values["nearly_zero"].push_back(state.nearly_zero);
  }
  std::map<std::string, Measured> result;
  for (const auto& [name, of_seeds] : values) result[name] = over_seeds(of_seeds);
  return result;
}

std::vector<SaturationRow> measure_saturation(const ExperimentOptions& options) {
  std::vector<SaturationRow> rows;
  const std::vector<Index> widths = widths_of(options);
  for (std::size_t i = 0; i < widths.size(); ++i) {
    report(options, fmt::format("the softmax and its gradient, Dk = {}", widths[i]),
           0.4 + 0.1 * static_cast<double>(i) / static_cast<double>(widths.size()));
    rows.push_back({widths[i], saturation(widths[i], 1.0, options),
                    saturation(widths[i], std::nullopt, options)});
  }
  return rows;
}

HeatMaps weight_maps(const ExperimentOptions& options) {
  HeatMaps maps;
  maps.key = "weights";
  maps.title = {fmt::format("Weights at Dk = {}", kLargestWidth),
                fmt::format("Dk = {} 时的权重", kLargestWidth)};
  const auto weights = [&](std::optional<double> scale) {
    return softmax_state({.width = kLargestWidth,
                          .tokens = kShownTokens,
                          .scale = scale,
                          .seed = options.seed},
                         engine_options(options))
        .weights;
  };
  maps.variants.push_back(
      heat_map_variant({"scaled by 1/√Dk", "除以 √Dk"}, weights(std::nullopt).view()));
  maps.variants.push_back(heat_map_variant({"not scaled", "不缩放"}, weights(1.0).view()));
  maps.predict = {
      "The same queries and keys, without the division by √Dk: how many keys will a query still "
      "attend to?",
      "同样的 query 和 key，如果不除以 √Dk，一个 query 还会关注多少个 key？"};
  maps.reveal = {
      "Nearly always one: the logits' deviation is √1024 = 32, and the softmax of numbers so far "
      "apart is close to a maximum.",
      "几乎总是只有一个：logits 的标准差是 √1024 = 32，相差这么大的数经过 softmax "
      "就接近取最大值。"};
  return maps;
}

/// The largest part by which the measured mean of a row differs from what is expected.
template <class Rows, class Gap>
double largest_gap(const Rows& rows, Gap gap) {
  double largest = 0;
  for (const auto& row : rows) largest = std::max(largest, std::fabs(gap(row)));
  return largest;
}

std::vector<Effect> variance_effects(const std::vector<WidthRow>& rows,
                                     const std::vector<DepartureRow>& departures) {
  const double unscaled = largest_gap(rows, [](const WidthRow& row) {
    return row.unscaled.value / static_cast<double>(row.width) - 1;
  });
  const double scaled = largest_gap(rows, [](const WidthRow& row) { return row.scaled.value - 1; });
  const double general = largest_gap(
      departures, [](const DepartureRow& row) { return row.scaled.value / row.expected - 1; });
  const bool all_depart = std::all_of(departures.begin(), departures.end(),
                                      [](const DepartureRow& row) { return row.scaled.value > 2; });
  const auto [least, most] = std::minmax_element(
      departures.begin(), departures.end(),
      [](const DepartureRow& a, const DepartureRow& b) { return a.scaled.value < b.scaled.value; });
  return {
      {"variance_is_dk",
       {"Without a scale the variance of the logits is Dk.", "不缩放时，logits 的方差等于 Dk。"},
       {fmt::format("From Dk = 1 to {} it differs from Dk by at most {}.", rows.back().width,
                    percent(unscaled)),
        fmt::format("Dk 从 1 到 {}，与 Dk 的相对偏差最大为 {}。", rows.back().width,
                    percent(unscaled))},
       unscaled < kVarianceTolerance},
      {"variance_is_one",
       {"Divided by √Dk, it is 1 whatever the width.", "除以 √Dk 后，方差恒为 1，与维度无关。"},
       {fmt::format("It differs from 1 by at most {}.", percent(scaled)),
        fmt::format("与 1 的偏差最大为 {}。", percent(scaled))},
       scaled < kVarianceTolerance},
      {"assumptions_matter",
       {"That holds for independent components of mean 0 and variance 1, and not in general.",
        "这只在分量独立、均值 0、方差 1 时成立，并非普遍规律。"},
       {fmt::format("Shifted, wider or correlated components give a variance of {} to {} after the "
                    "division; the general "
                    "formula [tr(Σ²) + 2·μᵀΣμ]/Dk predicts each within {}.",
                    short_number(least->scaled.value), short_number(most->scaled.value),
                    percent(general)),
        fmt::format("分量有偏移、更宽或彼此相关时，缩放后的方差为 {} 到 {}；一般公式 [tr(Σ²) + "
                    "2·μᵀΣμ]/Dk 的预测误差都在 {} 以内。",
                    short_number(least->scaled.value), short_number(most->scaled.value),
                    percent(general))},
       all_depart && general < kGeneralTolerance}};
}

std::vector<Effect> saturation_effects(const SaturationRow& widest) {
  const auto unscaled = [&](const char* name) { return widest.unscaled.at(name).value; };
  const auto scaled = [&](const char* name) { return widest.scaled.at(name).value; };
  return {
      {"softmax_saturates",
       {"Without the scale wide heads saturate the softmax; with it they do not.",
        "不缩放时，维度一大 softmax 就饱和；缩放后不会。"},
       {fmt::format("At Dk = {} the largest of {} weights is {} on average and the entropy {} of "
                    "ln S; scaled, {} and {}.",
                    widest.width, kScaleTokens, short_number(unscaled("largest_weight")),
                    percent(unscaled("entropy")), short_number(scaled("largest_weight")),
                    percent(scaled("entropy"))),
        fmt::format(
            "Dk = {} 时，{} 个权重中最大者平均为 {}，熵是 ln S 的 {}；缩放后分别为 {} 和 {}。",
            widest.width, kScaleTokens, short_number(unscaled("largest_weight")),
            percent(unscaled("entropy")), short_number(scaled("largest_weight")),
            percent(scaled("entropy")))},
       unscaled("largest_weight") > 0.8 && unscaled("entropy") < 0.2 &&
           scaled("largest_weight") < 0.3 && scaled("entropy") > 0.8},
      {"gradient_vanishes",
       {"A saturated softmax passes nearly no gradient to most logits.",
        "饱和的 softmax 几乎不把梯度传给大多数 logits。"},
       {fmt::format("At Dk = {} the gradient of {} of the logits is below 1e-6 and its median {}; "
                    "scaled, {} and {}.",
                    widest.width, percent(unscaled("nearly_zero")),
                    short_number(unscaled("gradient_median")), percent(scaled("nearly_zero")),
                    short_number(scaled("gradient_median"))),
        fmt::format("Dk = {} 时，{} 的 logits 梯度小于 1e-6，中位数为 {}；缩放后分别为 {} 和 {}。",
                    widest.width, percent(unscaled("nearly_zero")),
                    short_number(unscaled("gradient_median")), percent(scaled("nearly_zero")),
                    short_number(scaled("gradient_median")))},
       unscaled("nearly_zero") > 0.5 && scaled("nearly_zero") < 0.01}};
}

}  // namespace

Experiment run_scale(const ExperimentOptions& options) {
  const std::vector<WidthRow> rows = measure_widths(options);
  const std::vector<DepartureRow> departures = measure_departures(options);
  const std::vector<SaturationRow> saturated = measure_saturation(options);

  Experiment experiment;
  experiment.name = "scale";
  experiment.section = 2;
  experiment.title = {"Why divide by √Dk", "为什么要除以 √Dk"};
  experiment.explanation = {
      "A logit is the dot product of a query and a key: Dk products. Where the components are "
      "independent, of mean 0 and "
      "variance 1, each product has variance 1 and their sum has variance Dk; dividing by √Dk "
      "brings it back to 1. Here the "
      "logits are drawn and measured, from one component to 1,024: each is the log-sum-exp of an "
      "attention with a single key. "
      "Then the assumptions are broken one by one, to see what the division does not mend.\n"
      "Beside it, what large logits do: how even the weights are, how large the largest of them "
      "is, and how much gradient "
      "comes through the softmax. Numbers are means over three seeds. Last, a model of one head is "
      "trained with and without the division.",
      "logit 是 query 与 key 的点积，共 Dk 项。若各分量独立、均值为 0、方差为 1，每一项的方差是 "
      "1，总和的方差就是 Dk；除以 √Dk "
      "后回到 1。这里从 1 维到 1024 维实际抽样并测量：每个 logit 取自只有一个 key 的注意力的 "
      "log-sum-exp。随后逐一打破这些假设，"
      "看看除以 √Dk 管不了什么。\n"
      "同时观察 logits 变大的后果：权重有多均匀、最大的权重有多大、有多少梯度能穿过 "
      "softmax。数值是三个随机种子的平均。"};
  experiment.tables = {variance_table(rows), departure_table(departures),
                       saturation_table(saturated)};
  experiment.charts = scale_charts(rows, departures, saturated);
  experiment.heat_maps.push_back(weight_maps(options));
  experiment.effects = variance_effects(rows, departures);
  for (Effect& effect : saturation_effects(saturated.back()))
    experiment.effects.push_back(std::move(effect));
  add_scale_training(options, experiment);
  experiment.seen = {
      "The variance of q·k grows as Dk, and 1/√Dk holds it at 1 – for components that are as the "
      "theory assumes; without "
      "it the softmax of wide heads picks one key and most gradients vanish.",
      "q·k 的方差随 Dk 增长，1/√Dk 把它稳定在 "
      "1——前提是分量符合理论假设；不缩放时，宽的头只会选中一个 key，大多数梯度消失。"};
  report(options, "done", 1);
  return experiment;
}

}  // namespace qkv::lab
