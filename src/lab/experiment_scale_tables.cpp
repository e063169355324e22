#include "lab/experiment_scale_tables.h"

#include <fmt/format.h>

#include <utility>

namespace qkv::lab {
namespace {

const std::vector<Column>& saturation_columns() {
  static const std::vector<Column> columns = {
      {"entropy", {"entropy of the weights / ln S", "权重的熵 / ln S"}, {}},
      {"largest_weight", {"largest weight", "最大权重"}, {}},
      {"gradient_norm", {"gradient of a row's logits: norm", "一行 logits 的梯度范数"}, {}},
      {"gradient_median", {"median of its entries", "梯度元素绝对值的中位数"}, {}},
      {"nearly_zero", {"part of them below 1e-6", "小于 1e-6 的比例"}, {}}};
  return columns;
}

void add_point(Series& series, Index x, const Measured& y) {
  series.x.push_back(static_cast<double>(x));
  series.y.push_back(y.value);
  if (y.low && y.high) {
    series.low.push_back(*y.low);
    series.high.push_back(*y.high);
  }
}

Chart variance_chart(const std::vector<WidthRow>& rows,
                     const std::vector<DepartureRow>& departures) {
  Chart chart{"logit_variance",
              {"Variance of the logits", "logits 的方差"},
              {same("Dk"), true},
              {{"variance", "方差"}, true},
              {}};
  Series unscaled{same("q·k"), {}, {}, {}, {}};
  Series theory{{"theory: Dk", "理论：Dk"}, {}, {}, {}, {}};
  Series scaled{same("q·k/√Dk"), {}, {}, {}, {}};
  for (const WidthRow& row : rows) {
    add_point(unscaled, row.width, row.unscaled);
    add_point(theory, row.width, {static_cast<double>(row.width), {}, {}});
    add_point(scaled, row.width, row.scaled);
  }
  chart.series = {unscaled, theory, scaled};
  for (const DepartureRow& row : departures) {
    if (chart.series.back().name.english != row.name.english + ", q·k/√Dk") {
      chart.series.push_back(
          {{row.name.english + ", q·k/√Dk", row.name.chinese + "，q·k/√Dk"}, {}, {}, {}, {}});
    }
    add_point(chart.series.back(), row.width, row.scaled);
  }
  return chart;
}

Chart saturation_chart(const Column& column, bool logarithmic,
                       const std::vector<SaturationRow>& rows) {
  Chart chart{column.key, column.name, {same("Dk"), true}, {column.name, logarithmic}, {}};
  Series unscaled{{"not scaled", "不缩放"}, {}, {}, {}, {}};
  Series scaled{{"scaled by 1/√Dk", "除以 √Dk"}, {}, {}, {}, {}};
  for (const SaturationRow& row : rows) {
    add_point(unscaled, row.width, row.unscaled.at(column.key));
    add_point(scaled, row.width, row.scaled.at(column.key));
  }
  chart.series = {unscaled, scaled};
  return chart;
}

}  // namespace

Table variance_table(const std::vector<WidthRow>& rows) {
  Table table{"logit_variance",
              {"Variance of the logits of independent standard normal queries and keys",
               "分量独立、均值 0、方差 1 时 logits 的方差"},
              {{"head_width", same("Dk"), {}},
               {"unscaled", {"q·k", "q·k"}, {}},
               {"unscaled_theory", {"theory", "理论值"}, {}},
               {"scaled", {"q·k/√Dk", "q·k/√Dk"}, {}},
               {"scaled_theory", {"theory", "理论值"}, {}}},
              {}};
  for (const WidthRow& row : rows) {
    table.rows.push_back({row.width, row.unscaled, row.width, row.scaled, std::int64_t{1}});
  }
  return table;
}

Table departure_table(const std::vector<DepartureRow>& rows) {
  Table table{"assumptions",
              {"Where the assumptions fail: variance of q·k/√Dk, which should be 1",
               "假设不成立时 q·k/√Dk 的方差（本应为 1）"},
              {{"components", {"components", "分量"}, {}},
               {"head_width", same("Dk"), {}},
               {"scaled", {"measured", "实测"}, {}},
               {"lesson", {"by the lesson", "按课文"}, {}},
               {"general", {"by [tr(Σ²) + 2·μᵀΣμ]/Dk", "按 [tr(Σ²) + 2·μᵀΣμ]/Dk"}, {}}},
              {}};
  for (const DepartureRow& row : rows) {
    table.rows.push_back(
        {row.name, row.width, row.scaled, std::int64_t{1}, Measured{row.expected, {}, {}}});
  }
  return table;
}

Table saturation_table(const std::vector<SaturationRow>& rows) {
  Table table{
      "saturation",
      {fmt::format("The softmax over S = {} keys, and the gradient through it", kScaleTokens),
       fmt::format("对 S = {} 个 key 的 softmax，以及穿过它的梯度", kScaleTokens)},
      {{"head_width", same("Dk"), {}}, {"scale", {"scale", "缩放"}, {}}},
      {}};
  const auto& columns = saturation_columns();
  table.columns.insert(table.columns.end(), columns.begin(), columns.end());
  for (const SaturationRow& row : rows) {
    for (const bool scaled : {false, true}) {
      std::vector<Cell> cells = {row.width, std::string(scaled ? "1/√Dk" : "1")};
      for (const Column& column : columns) {
        cells.emplace_back((scaled ? row.scaled : row.unscaled).at(column.key));
      }
      table.rows.push_back(std::move(cells));
    }
  }
  return table;
}

std::vector<Chart> scale_charts(const std::vector<WidthRow>& rows,
                                const std::vector<DepartureRow>& departures,
                                const std::vector<SaturationRow>& saturated) {
  std::vector<Chart> charts = {variance_chart(rows, departures)};
  for (const Column& column : saturation_columns()) {
    const bool logarithmic = column.key.starts_with("gradient");
    charts.push_back(saturation_chart(column, logarithmic, saturated));
  }
  return charts;
}

}  // namespace qkv::lab
