#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "lab/experiment_complexity_parts.h"
#include "lab/text_style.h"

namespace qkv::lab {
namespace {

constexpr double kFloat = 4;         // bytes
constexpr double kSoftmaxFlops = 5;  // an entry: largest, minus, exponential, sum, divide
constexpr Index kHeadWidth = 64;

/// Where attention's two products cost as much as other parts, in tokens.
struct Crossovers {
  Index model_width = 0;
  Index with_qkv = 0;
  Index with_projections = 0;  ///< QKV and output
  Index with_all = 0;          ///< and FFN
};

Crossovers crossovers_of(Index model_width) {
  const BlockSizes sizes{1, model_width, model_width / kHeadWidth};
  return {model_width, crossover(sizes, [](const BlockCosts& costs) { return costs.qkv; }),
          crossover(sizes, [](const BlockCosts& costs) { return costs.qkv + costs.output; }),
          crossover(sizes,
                    [](const BlockCosts& costs) { return costs.qkv + costs.output + costs.ffn; })};
}

std::vector<Index> widths() { return {256, 768, 4096}; }
std::vector<Index> lengths() { return {128, 512, 2048, 8192, 32768}; }

Table cost_table() {
  Table table{"costs",
              {"Operations and bytes of a block by part (float32, scores in memory, heads of 64)",
               "一个 block 各部分的运算量与访存量（float32，分数放在内存，每头 64 维）"},
              {{"model_width", same("D"), {}},
               {"tokens", same("T"), {}},
               {"gflops", {"operations", "运算量"}, same("GFLOP")},
               {"qkv", {"QKV", "QKV"}, {"part", "占比"}},
               {"scores", {"QKᵀ", "QKᵀ"}, {"part", "占比"}},
               {"softmax", {"softmax", "softmax"}, {"part", "占比"}},
               {"aggregation", {"P·V", "P·V"}, {"part", "占比"}},
               {"output", {"output", "输出投影"}, {"part", "占比"}},
               {"ffn", {"FFN", "FFN"}, {"part", "占比"}},
               {"bytes", {"bytes", "访存量"}, {}},
               {"attention_bytes",
                {"of them scores, softmax and P·V", "其中分数、softmax 与 P·V"},
                {"part", "占比"}}},
              {}};
  for (const Index width : widths()) {
    for (const Index tokens : lengths()) {
      const BlockSizes sizes{tokens, width, width / kHeadWidth};
      const BlockCosts flops = block_flops(sizes);
      const BlockCosts bytes = block_bytes(sizes);
      const auto part = [&](double of) { return Cell(percent(of / flops.total())); };
      table.rows.push_back({width, tokens, Measured{flops.total() / 1e9, {}, {}}, part(flops.qkv),
                            part(flops.scores), part(flops.softmax), part(flops.aggregation),
                            part(flops.output), part(flops.ffn), byte_count(bytes.total()),
                            percent(bytes.attention() / bytes.total())});
    }
  }
  return table;
}

Chart share_chart() {
  Chart chart{"attention_part",
              {"Part of the operations that grows as T²", "随 T² 增长的部分在运算量中的占比"},
              {{"tokens T", "token 数 T"}, true},
              {{"QKᵀ, softmax and P·V", "QKᵀ、softmax 与 P·V"}, false},
              {}};
  for (const Index width : widths()) {
    Series series{same(fmt::format("D = {}", width)), {}, {}, {}, {}};
    for (Index tokens = 64; tokens <= 65536; tokens *= 2) {
      const BlockCosts flops = block_flops({tokens, width, width / kHeadWidth});
      series.x.push_back(static_cast<double>(tokens));
      series.y.push_back(flops.attention() / flops.total());
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

Table crossover_table(const std::vector<Crossovers>& rows) {
  Table table{"crossovers",
              {"Tokens at which QKᵀ and P·V cost as many operations as",
               "QKᵀ 与 P·V 的运算量追上下列部分时的 token 数"},
              {{"model_width", same("D"), {}},
               {"with_qkv", {"QKV (1.5·D)", "QKV（1.5·D）"}, {}},
               {"with_projections", {"QKV and output (2·D)", "QKV 与输出投影（2·D）"}, {}},
               {"with_all", {"QKV, output and FFN (6·D)", "QKV、输出投影与 FFN（6·D）"}, {}}},
              {}};
  for (const Crossovers& row : rows) {
    table.rows.push_back({row.model_width, row.with_qkv, row.with_projections, row.with_all});
  }
  return table;
}

}  // namespace

BlockCosts block_flops(const BlockSizes& sizes) {
  const auto t = static_cast<double>(sizes.tokens);
  const auto d = static_cast<double>(sizes.model_width);
  const double entries = static_cast<double>(sizes.heads) * t * t;
  return {6 * t * d * d, 2 * t * t * d, kSoftmaxFlops * entries,
          2 * t * t * d, 2 * t * d * d, 16 * t * d * d};
}

BlockCosts block_bytes(const BlockSizes& sizes) {
  const auto t = static_cast<double>(sizes.tokens);
  const auto d = static_cast<double>(sizes.model_width);
  const double entries = static_cast<double>(sizes.heads) * t * t;
  return {kFloat * (3 * d * d + 4 * t * d),
          kFloat * (2 * t * d + entries),
          kFloat * 2 * entries,
          kFloat * (entries + 2 * t * d),
          kFloat * (d * d + 2 * t * d),
          kFloat * (8 * d * d + 10 * t * d)};
}

void add_costs(const ExperimentOptions& options, Experiment& experiment) {
  report(options, "operations and bytes by part", 0);
  std::vector<Crossovers> rows;
  for (const Index width : widths()) rows.push_back(crossovers_of(width));
  experiment.tables.push_back(cost_table());
  experiment.tables.push_back(crossover_table(rows));
  experiment.charts.push_back(share_chart());

  const bool at_multiples = std::all_of(rows.begin(), rows.end(), [](const Crossovers& row) {
    return 2 * row.with_qkv == 3 * row.model_width && row.with_projections == 2 * row.model_width &&
           row.with_all == 6 * row.model_width;
  });
  const BlockCosts brief = block_flops({512, 4096, 64});
  experiment.effects.push_back(
      {"linear_layers_dominate",
       {"In short sequences of wide models the linear layers take most operations; attention "
        "overtakes the projections at T = 2·D and all "
        "of them at T = 6·D.",
        "序列短、模型宽时，线性层占去大部分运算；注意力在 T = 2·D 时追上投影，在 T = 6·D "
        "时追上全部线性层。"},
       {fmt::format(
            "D = {}: at T = {} and {}. At T = 512 and D = 4,096 attention is {} of the operations.",
            rows[1].model_width, rows[1].with_projections, rows[1].with_all,
            percent(brief.attention() / brief.total())),
        fmt::format("D = {}：分别在 T = {} 和 {}。T = 512、D = 4096 时注意力只占运算量的 {}。",
                    rows[1].model_width, rows[1].with_projections, rows[1].with_all,
                    percent(brief.attention() / brief.total()))},
       at_multiples && brief.attention() < 0.1 * brief.total()});
}

}  // namespace qkv::lab
