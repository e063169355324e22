#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "bench/peak_memory.h"
#include "lab/experiment_complexity_parts.h"
#include "lab/materialized_attention.h"

namespace qkv::lab {
namespace {

constexpr Index kHeads = 8;
constexpr Index kHeadWidth = 64;
constexpr double kEqual = 1e-5;  // of the largest entry, in float32
constexpr double kBlockTensors =
    16;  // [T,D] that a block keeps: x, norms, q, k, v, context, sum, and the FFN's two of 4·D

struct TrainingRow {
  Index tokens = 0;
  double saved_probabilities = 0;  ///< bytes
  double saved_rest = 0;           ///< bytes: q, k, v, context
  double saved_log_sum_exp = 0;    ///< bytes, in their place in tiles
  std::optional<std::size_t> materialized_peak;
  std::optional<std::size_t> tiled_peak;
  double materialized_seconds = 0;
  double tiled_seconds = 0;
  double context_difference = 0;
  double gradient_difference = 0;

  double saved_part() const noexcept {
    return saved_probabilities / (saved_probabilities + saved_rest);
  }
};

double worst_difference(const TrainingResults& a, const TrainingResults& b) {
  return std::max({relative_difference(std::as_const(a.query_gradient).elements(),
                                       std::as_const(b.query_gradient).elements()),
                   relative_difference(std::as_const(a.key_gradient).elements(),
                                       std::as_const(b.key_gradient).elements()),
                   relative_difference(std::as_const(a.value_gradient).elements(),
                                       std::as_const(b.value_gradient).elements())});
}

TrainingRow measure(Index tokens, const ExperimentOptions& options) {
  const engine::Options threads = engine_options(options);
  NormalNumbers numbers(options.seed);
  const Extents<4> shape = {1, kHeads, tokens, kHeadWidth};
  const TrainingInputs inputs{numbers.tensor<float, 4>(shape), numbers.tensor<float, 4>(shape),
                              numbers.tensor<float, 4>(shape), numbers.tensor<float, 4>(shape)};
  TrainingRow row;
  row.tokens = tokens;
  const auto entries = static_cast<double>(kHeads * tokens);
  row.saved_probabilities = entries * static_cast<double>(tokens) * sizeof(float);
  row.saved_log_sum_exp = entries * sizeof(float);
  row.saved_rest = 4 * entries * kHeadWidth * sizeof(float);

  std::optional<TrainingResults> materialized;
  std::optional<TrainingResults> tiled;
  row.materialized_peak =
      bench::peak_extra_memory([&] { materialized = train_materialized(inputs, threads); });
  {
    // A workspace of its own: what a call of a thread's keeps from before would not show.
    engine::Workspace workspace;
    engine::Options fresh = threads;
    fresh.workspace = &workspace;
    row.tiled_peak = bench::peak_extra_memory([&] { tiled = train_tiled(inputs, fresh); });
  }
  row.context_difference = relative_difference(std::as_const(tiled->context).elements(),
                                               std::as_const(materialized->context).elements());
  row.gradient_difference = worst_difference(*tiled, *materialized);
  row.materialized_seconds =
      fastest_seconds([&] { materialized = train_materialized(inputs, threads); }, options);
  row.tiled_seconds = fastest_seconds([&] { tiled = train_tiled(inputs, threads); }, options);
  return row;
}

Cell bytes_cell(const std::optional<std::size_t>& bytes) {
  if (!bytes) return Text{"not told by the system", "系统未提供"};
  return byte_count(static_cast<double>(*bytes));
}

Table training_table(const std::vector<TrainingRow>& rows) {
  Table table{
      "training",
      {fmt::format("A training step of attention, H = {}, heads of {}, float32: probabilities in "
                   "memory, and tiles",
                   kHeads, kHeadWidth),
       fmt::format("注意力的一步训练，H = {}，每头 {} 维，float32：概率存入内存，与分块计算",
                   kHeads, kHeadWidth)},
      {{"tokens", same("T"), {}},
       {"probabilities", {"probabilities kept for the backward pass", "为反向保存的概率"}, {}},
       {"part", {"their part of what attention keeps", "占注意力所存的比例"}, {}},
       {"block_part", {"of what a block keeps", "占整个 block 所存的比例"}, {}},
       {"log_sum_exp", {"tiles keep in their place", "分块时改存"}, {}},
       {"materialized_peak", {"measured peak", "实测峰值"}, {}},
       {"tiled_peak", {"measured peak in tiles", "分块实测峰值"}, {}},
       {"materialized_seconds", {"time", "耗时"}, same("s")},
       {"tiled_seconds", {"time in tiles", "分块耗时"}, same("s")},
       {"context_difference",
        {"difference of the context", "输出之差"},
        {"of the largest entry", "相对最大元素"}},
       {"gradient_difference",
        {"of the gradients", "梯度之差"},
        {"of the largest entry", "相对最大元素"}}},
      {}};
  for (const TrainingRow& row : rows) {
    const auto number = [](double value) { return Measured{value, {}, {}}; };
    const double block = row.saved_probabilities + kBlockTensors / 4 * row.saved_rest;
    table.rows.push_back({row.tokens, byte_count(row.saved_probabilities), number(row.saved_part()),
                          number(row.saved_probabilities / block),
                          byte_count(row.saved_log_sum_exp), bytes_cell(row.materialized_peak),
                          bytes_cell(row.tiled_peak), number(row.materialized_seconds),
                          number(row.tiled_seconds), number(row.context_difference),
                          number(row.gradient_difference)});
  }
  return table;
}

Chart memory_chart(const std::vector<TrainingRow>& rows) {
  Chart chart{"training_memory",
              {"Peak memory of a training step of attention", "注意力一步训练的内存峰值"},
              {{"tokens T", "token 数 T"}, true},
              {{"bytes", "字节"}, true},
              {}};
  Series materialized{{"probabilities in memory, measured", "概率存入内存，实测"}, {}, {}, {}, {}};
  Series model{{"the probabilities alone, 4·H·T²", "仅概率，4·H·T²"}, {}, {}, {}, {}};
  Series tiled{{"in tiles, measured", "分块，实测"}, {}, {}, {}, {}};
  for (const TrainingRow& row : rows) {
    const auto tokens = static_cast<double>(row.tokens);
    model.x.push_back(tokens);
    model.y.push_back(row.saved_probabilities);
    if (!row.materialized_peak || !row.tiled_peak) continue;
    materialized.x.push_back(tokens);
    materialized.y.push_back(static_cast<double>(*row.materialized_peak));
    tiled.x.push_back(tokens);
    tiled.y.push_back(static_cast<double>(*row.tiled_peak));
  }
  chart.series = {std::move(model)};
  if (!materialized.x.empty()) {
    chart.series.push_back(std::move(materialized));
    chart.series.push_back(std::move(tiled));
  }
  return chart;
}

std::vector<Effect> training_effects(const std::vector<TrainingRow>& rows) {
  const TrainingRow& last = rows.back();
  double worst = 0;
  for (const TrainingRow& row : rows)
    worst = std::max({worst, row.context_difference, row.gradient_difference});
  Text measured;
  if (last.materialized_peak && last.tiled_peak) {
    const std::string whole = byte_count(static_cast<double>(*last.materialized_peak));
    const std::string tiles = byte_count(static_cast<double>(*last.tiled_peak));
    measured = {fmt::format(" Measured peaks: {} and, in tiles, {}.", whole, tiles),
                fmt::format("实测峰值 {}，分块 {}。", whole, tiles)};
  }
  return {
      {"probabilities_fill_memory",
       {"Training keeps the probabilities for the backward pass: T² of them a head. In long "
        "sequences they take most of attention's memory.",
        "训练要为反向保存概率，每头 T² 个，序列长时占注意力内存的大部分。"},
       {fmt::format("T = {}: {}, {} of what attention keeps; tiles keep {} in their place.{}",
                    last.tokens, byte_count(last.saved_probabilities), percent(last.saved_part()),
                    byte_count(last.saved_log_sum_exp), measured.english),
        fmt::format("T = {}：{}，占注意力所存的 {}；分块只存 {}。{}", last.tokens,
                    byte_count(last.saved_probabilities), percent(last.saved_part()),
                    byte_count(last.saved_log_sum_exp), measured.chinese)},
       last.saved_part() > 0.5 && last.saved_part() > rows.front().saved_part()},
      {"tiles_are_exact",
       {"Computing in tiles changes no result.", "分块计算不改变结果。"},
       {fmt::format("Context and gradients differ by {:.1e} of their largest entry at most.",
                    worst),
        fmt::format("输出与梯度的差最大为其最大元素的 {:.1e}。", worst)},
       worst < kEqual}};
}

}  // namespace

void add_training_memory(const ExperimentOptions& options, Experiment& experiment) {
  const Index longest = options.quick ? 1024 : 4096;
  std::vector<TrainingRow> rows;
  for (Index tokens = 128; tokens <= longest; tokens *= 2) {
    report(options, fmt::format("a training step, T = {}", tokens),
           0.5 + 0.04 * static_cast<double>(rows.size()));
    rows.push_back(measure(tokens, options));
  }
  experiment.tables.push_back(training_table(rows));
  experiment.charts.push_back(memory_chart(rows));
  for (Effect& effect : training_effects(rows)) experiment.effects.push_back(std::move(effect));
}

}  // namespace qkv::lab
