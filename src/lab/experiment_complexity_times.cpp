#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "engine/matrix_product.h"
#include "lab/experiment_complexity_parts.h"

namespace qkv::lab {
namespace {

constexpr Index kModelWidth = 256;
constexpr Index kHeads = 4;
constexpr int kRounds = 3;  // over all lengths: what slows one of them down passes

struct PartTimes {
  Index tokens = 0;
  double qkv = 0;
  double attention = 0;
  double output = 0;
  double ffn = 0;

  /// Of two measurements of the same, what each part took at least.
  void take_faster(const PartTimes& other) noexcept {
    for (double PartTimes::*part :
         {&PartTimes::qkv, &PartTimes::attention, &PartTimes::output, &PartTimes::ffn}) {
      this->*part = std::min(this->*part, other.*part);
    }
  }
  double linear() const noexcept { return qkv + output + ffn; }
  double total() const noexcept { return linear() + attention; }
};

/// [rows, columns] of a dense tensor.
engine::MatrixView<float> matrix(const Tensor<float, 2>& tensor) {
  return {tensor.data(), tensor.shape(0), tensor.shape(1), tensor.shape(1), 1};
}

/// Seconds of y = x·Wᵀ.
double product_seconds(const Tensor<float, 2>& x, const Tensor<float, 2>& weight,
                       const ExperimentOptions& options) {
  Tensor<float, 2> y({x.shape(0), weight.shape(0)});
  return fastest_seconds(
      [&] {
        engine::multiply(matrix(x), matrix(weight).transposed(), engine::Result::Replaced, y.data(),
                         engine_options(options));
      },
      options);
}

double attention_seconds(Index tokens, NormalNumbers& numbers, const ExperimentOptions& options) {
  const Extents<4> shape = {1, kHeads, tokens, kModelWidth / kHeads};
  const auto query = numbers.tensor<float, 4>(shape);
  const auto key = numbers.tensor<float, 4>(shape);
  const auto value = numbers.tensor<float, 4>(shape);
  Tensor<float, 4> context(shape);
  return fastest_seconds(
      [&] {
        engine::forward<float>({.query = query.view(), .key = key.view(), .value = value.view()},
                               {.context = context.view()}, engine_options(options));
      },
      options);
}

PartTimes measure(Index tokens, const ExperimentOptions& options) {
  NormalNumbers numbers(options.seed);
  const auto x = numbers.tensor<float, 2>({tokens, kModelWidth});
  const auto hidden = numbers.tensor<float, 2>({tokens, 4 * kModelWidth});
  const auto weight = [&](Index rows, Index columns) {
    return numbers.tensor<float, 2>({rows, columns});
  };
  PartTimes times;
  times.tokens = tokens;
  times.qkv = product_seconds(x, weight(3 * kModelWidth, kModelWidth), options);
  times.attention = attention_seconds(tokens, numbers, options);
  times.output = product_seconds(x, weight(kModelWidth, kModelWidth), options);
  times.ffn = product_seconds(x, weight(4 * kModelWidth, kModelWidth), options) +
              product_seconds(hidden, weight(kModelWidth, 4 * kModelWidth), options);
  return times;
}

Table time_table(const std::vector<PartTimes>& rows) {
  Table table{
      "part_times",
      {fmt::format("Measured seconds by part, D = {}, H = {}, float32", kModelWidth, kHeads),
       fmt::format("各部分实测耗时，D = {}，H = {}，float32", kModelWidth, kHeads)},
      {{"tokens", same("T"), {}},
       {"qkv", same("QKV"), same("s")},
       {"attention", {"attention", "注意力"}, same("s")},
       {"output", {"output", "输出投影"}, same("s")},
       {"ffn", {"FFN, its two products", "FFN（两次矩阵乘）"}, same("s")},
       {"time_part", {"attention's part of the time", "注意力的时间占比"}, {}},
       {"flop_part", {"of the operations", "运算量占比"}, {}}},
      {}};
  for (const PartTimes& row : rows) {
    const BlockCosts flops = block_flops({row.tokens, kModelWidth, kHeads});
    const auto number = [](double value) { return Measured{value, {}, {}}; };
    table.rows.push_back({row.tokens, number(row.qkv), number(row.attention), number(row.output),
                          number(row.ffn), number(row.attention / row.total()),
                          number(flops.attention() / flops.total())});
  }
  return table;
}

Chart time_chart(const std::vector<PartTimes>& rows) {
  Chart chart{"part_times",
              {"Seconds by part", "各部分耗时"},
              {{"tokens T", "token 数 T"}, true},
              {{"seconds", "秒"}, true},
              {}};
  const std::vector<std::pair<Text, double PartTimes::*>> parts = {
      {same("QKV"), &PartTimes::qkv},
      {{"attention", "注意力"}, &PartTimes::attention},
      {{"output", "输出投影"}, &PartTimes::output},
      {same("FFN"), &PartTimes::ffn}};
  for (const auto& [name, part] : parts) {
    Series series{name, {}, {}, {}, {}};
    for (const PartTimes& row : rows) {
      series.x.push_back(static_cast<double>(row.tokens));
      series.y.push_back(row.*part);
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

/// Whether attention's share falls where T grows: the machine was busy with something else then.
bool is_noisy(const std::vector<PartTimes>& rows) {
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const auto share = [](const PartTimes& row) { return row.attention / row.total(); };
    if (share(rows[i]) < share(rows[i - 1])) return true;
  }
  return false;
}

/// Where attention takes as long as `other`, between measured lengths on logarithmic axes; absent where it never does.
template <class Other>
std::optional<double> measured_crossover(const std::vector<PartTimes>& rows, Other other) {
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const double before = std::log(rows[i - 1].attention / other(rows[i - 1]));
    const double after = std::log(rows[i].attention / other(rows[i]));
    if (before >= 0 || after < 0) continue;
    const double part = -before / (after - before);
    return static_cast<double>(rows[i - 1].tokens) *
           std::pow(static_cast<double>(rows[i].tokens) / static_cast<double>(rows[i - 1].tokens),
                    part);
  }
  return std::nullopt;
}

Text crossover_found(const std::vector<PartTimes>& rows) {
  if (is_noisy(rows)) {
    return {"The clock was too noisy to say where attention overtakes the linear layers.",
            "计时噪声太大，无法判断注意力在何处追上线性层。"};
  }
  const auto projections =
      measured_crossover(rows, [](const PartTimes& row) { return row.qkv + row.output; });
  const auto all = measured_crossover(rows, [](const PartTimes& row) { return row.linear(); });
  const auto in_words = [&](const std::optional<double>& at) {
    return at ? Text{fmt::format("at T = {:.0f}", *at), fmt::format("T = {:.0f}", *at)}
              : Text{fmt::format("not up to T = {}", rows.back().tokens),
                     fmt::format("到 T = {} 仍未追上", rows.back().tokens)};
  };
  const Text first = in_words(projections);
  const Text second = in_words(all);
  return {fmt::format("Attention takes as long as QKV and output {} (by operations {}), as long as "
                      "all linear layers {} (by operations {}).",
                      first.english, 2 * kModelWidth, second.english, 6 * kModelWidth),
          fmt::format("注意力耗时追上 QKV 与输出投影：{}（按运算量为 "
                      "{}）；追上全部线性层：{}（按运算量为 {}）。",
                      first.chinese, 2 * kModelWidth, second.chinese, 6 * kModelWidth)};
}

}  // namespace

Text add_part_times(const ExperimentOptions& options, Experiment& experiment) {
  const Index longest = options.quick ? 2048 : 8192;
  std::vector<PartTimes> rows;
  for (int round = 0; round < kRounds; ++round) {
    std::size_t row = 0;
    for (Index tokens = 64; tokens <= longest; tokens *= 2, ++row) {
      report(options, fmt::format("seconds by part, T = {}", tokens),
             0.05 + 0.1 * round + 0.01 * static_cast<double>(row));
      const PartTimes times = measure(tokens, options);
      if (round == 0) {
        rows.push_back(times);
      } else {
        rows[row].take_faster(times);
      }
    }
  }
  experiment.tables.push_back(time_table(rows));
  experiment.charts.push_back(time_chart(rows));
  return crossover_found(rows);
}

}  // namespace qkv::lab
