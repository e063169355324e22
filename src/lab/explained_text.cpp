#include "lab/explained_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "explain/attention_attributions.h"
#include "lab/experiment_parts.h"
#include "lab/text_style.h"

namespace qkv::lab {
namespace {

using explain::MethodReport;
using explain::Report;

/// Of one kind in a page: beyond, it holds means over heads.
constexpr Index kMostWeights = Index{1} << 19;

Measured plain(double value) { return {value, {}, {}}; }
Measured spread(const explain::Spread& of) { return {of.mean, of.low, of.high}; }

std::vector<std::string> labels_of(const Report& report) {
  std::vector<std::string> labels;
  for (const std::string& token : report.tokens) labels.push_back(token_label(token));
  return labels;
}

TokenMaps token_maps(const Report& report) {
  TokenMaps maps{"tokens",
                 {"What each method calls important: a token's score against the largest",
                  "各方法认为重要的 token：得分相对于最大值"},
                 labels_of(report),
                 {}};
  for (const MethodReport& method : report.methods)
    maps.methods.push_back({method.attribution.name, method.attribution.scores});
  return maps;
}

/// Numbers of a layer [H,T,T], or their mean over the heads; returns where the next ones go.
float* add_map(const Tensor<double, 3>& layer, bool by_head, float* to) {
  const auto rounded = [](double value) { return static_cast<float>(value); };
  if (by_head) return std::ranges::transform(layer.elements(), to, rounded).out;
  return std::ranges::transform(explain::mean_over_heads(layer).elements(), to, rounded).out;
}

HeatMaps weight_maps(const Report& report) {
  const auto layers = static_cast<Index>(report.layers.size());
  const Index tokens = report.sizes.tokens;
  const bool by_head = layers * report.sizes.heads * tokens * tokens <= kMostWeights;
  const Index heads = by_head ? report.sizes.heads : 1;
  HeatMaps maps;
  maps.key = "weights";
  maps.title = by_head ? Text{"Weights of each layer and head", "各层各头的权重"}
                       : Text{"Weights of each layer, mean of its heads", "各层的权重，各头平均"};
  maps.query_labels = maps.key_labels = labels_of(report);
  HeatMapVariant weights{{"attention weights", "注意力权重"},
                         Tensor<float, 5>({layers, 1, heads, tokens, tokens}),
                         {}};
  HeatMapVariant delivered{{"share of what is delivered", "实际传递量的占比"},
                           Tensor<float, 5>({layers, 1, heads, tokens, tokens}),
                           {}};
  float* weight = weights.values.data();
  float* share = delivered.values.data();
  for (const explain::LayerReport& layer : report.layers) {
    weight = add_map(layer.weights, by_head, weight);
    share = add_map(layer.delivered_shares, by_head, share);
  }
  maps.variants.push_back(std::move(weights));
  maps.variants.push_back(std::move(delivered));
  return maps;
}

bool is_drawn(std::string_view key) {
  return key == "raw_attention" || key == "attention_rollout" || key == "integrated_gradients" ||
         key == "gradient_times_input";
}

Series curve_series(const Text& name, const explain::Curve& curve) {
  return {name, curve.part, curve.target, {}, {}};
}

/// A few methods and the intervention that faith is measured by, beside random orders.
Chart curve_chart(const Report& report, const char* key, Text title,
                  explain::Curve explain::Curves::*which) {
  Chart chart{key,
              std::move(title),
              {{"part of the tokens", "token 的比例"}, false},
              {{"target", "目标"}, false},
              {}};
  for (const MethodReport& method : report.methods) {
    const bool chosen =
        is_drawn(method.attribution.key) || method.attribution.key == explain::key_of(report.how);
    if (chosen) chart.series.push_back(curve_series(method.attribution.name, method.curves.*which));
  }
  Series random{{"random order", "随机顺序"}, {}, {}, {}, {}};
  for (std::size_t i = 0; i < (report.random.curves.front().*which).part.size(); ++i) {
    std::vector<double> targets;
    for (const explain::Curves& one : report.random.curves)
      targets.push_back((one.*which).target[i]);
    const explain::Spread spread = explain::spread_of(targets);
    random.x.push_back((report.random.curves.front().*which).part[i]);
    random.y.push_back(spread.mean);
    random.low.push_back(spread.low);
    random.high.push_back(spread.high);
  }
  chart.series.push_back(std::move(random));
  return chart;
}

Text verdict_text(const Report& report, const MethodReport& method) {
  const explain::Judgement& judgement = method.judgement;
  const auto token = [&](Index t) {
    return token_label(report.tokens[static_cast<std::size_t>(t)]);
  };
  switch (judgement.verdict) {
    case explain::Verdict::Agrees:
      return {fmt::format("agrees: \"{}\"", token(judgement.pointed)),
              fmt::format("一致：“{}”", token(judgement.pointed))};
    case explain::Verdict::Misleads:
      return {fmt::format("misleads: \"{}\", not \"{}\"", token(judgement.pointed),
                          token(judgement.decisive)),
              fmt::format("误导：指向“{}”，而非“{}”", token(judgement.pointed),
                          token(judgement.decisive))};
    case explain::Verdict::NothingFound:
      break;
  }
  return {"no single token matters", "没有哪个 token 单独重要"};
}

Table faith_table(const Report& report) {
  const Text& judge =
      std::ranges::find(report.methods, explain::key_of(report.how), [](const MethodReport& m) {
        return m.attribution.key;
      })->attribution.name;
  Table table{"faith",
              {"What each method is worth here, held against interventions: " + judge.english,
               "各方法在这里有多可信，与干预对照：" + judge.chinese},
              {{"method", {"method", "方法"}, {}},
               {"verdict", {"its first token", "排第一的 token"}, {}},
               {"deletion", {"deletion area (small is good)", "删除曲线面积（小为好）"}, {}},
               {"insertion", {"insertion area (large is good)", "插入曲线面积（大为好）"}, {}},
               {"comprehensiveness", {"comprehensiveness (large is good)", "完整性（大为好）"}, {}},
               {"sufficiency", {"sufficiency (small is good)", "充分性（小为好）"}, {}},
               {"infidelity", {"infidelity (small is good)", "不忠实度（小为好）"}, {}},
               {"spearman", {"rank agreement (Spearman)", "秩相关（Spearman）"}, {}},
               {"kendall", {"rank agreement (Kendall)", "秩相关（Kendall）"}, {}}},
              {}};
  for (const MethodReport& method : report.methods) {
    const explain::Faith& faith = method.faith;
    table.rows.push_back({method.attribution.name, verdict_text(report, method),
                          plain(faith.deletion_area), plain(faith.insertion_area),
                          plain(faith.comprehensiveness), plain(faith.sufficiency),
                          plain(faith.infidelity), plain(faith.spearman), plain(faith.kendall)});
  }
  const explain::RandomFaith& random = report.random.faith;
  table.rows.push_back({Text{"random order", "随机顺序"}, same("–"), spread(random.deletion_area),
                        spread(random.insertion_area), spread(random.comprehensiveness),
                        spread(random.sufficiency), spread(random.infidelity),
                        spread(random.spearman), spread(random.kendall)});
  return table;
}

Table head_table(const Report& report) {
  Table table{
      "heads",
      {"What heat maps are good for: where each head looks", "热力图的用处：每个头看向哪里"},
      {{"layer", {"layer", "层"}, {}},
       {"head", {"head", "头"}, {}},
       {"verdict", {"mostly at (share of its weight)", "主要看（占其权重）"}, {}},
       {"previous", {"previous token", "前一个"}, {}},
       {"self", {"itself", "自身"}, {}},
       {"next", {"next token", "后一个"}, {}},
       {"first", {"first token", "第一个"}, {}},
       {"special", {"special tokens", "特殊 token"}, {}},
       {"entropy", {"entropy, of the largest possible", "熵（相对最大值）"}, {}},
       {"fall", {"target falls without it", "去掉它目标下降"}, {}}},
      {}};
  for (const explain::HeadProfile& head : report.heads) {
    table.rows.push_back({head.layer, head.head, head.verdict, plain(head.previous),
                          plain(head.self), plain(head.next), plain(head.first),
                          plain(head.special), plain(head.entropy),
                          plain(report.ablation.heads(head.layer, head.head))});
  }
  return table;
}

Table part_table(const Report& report) {
  Table table{
      "parts",
      {"By how much the target falls without a part of a layer", "去掉某层的一部分，目标下降多少"},
      {{"layer", {"layer", "层"}, {}},
       {"attention", {"attention", "注意力"}, {}},
       {"attention_skip", {"the residual past it", "绕过它的残差"}, {}},
       {"mlp", {"MLP", "MLP"}, {}},
       {"mlp_skip", {"the residual past it", "绕过它的残差"}, {}},
       {"both", {"attention and MLP", "注意力与 MLP"}, {}}},
      {}};
  const explain::Ablation& ablation = report.ablation;
  for (std::size_t i = 0; i < ablation.attention.size(); ++i) {
    table.rows.push_back({static_cast<Index>(i), plain(ablation.attention[i]),
                          plain(ablation.attention_skip[i]), plain(ablation.mlp[i]),
                          plain(ablation.mlp_skip[i]), plain(ablation.layers[i])});
  }
  return table;
}

/// Empty where no weights were shuffled.
std::vector<Table> sanity_tables(const Report& report) {
  const auto any = std::ranges::find_if(
      report.methods, [](const MethodReport& method) { return !method.sanity.empty(); });
  if (any == report.methods.end()) return {};
  Table table{"sanity",
              {"Rank agreement of a method with itself when the weights of the last layers are in "
               "random order (1: it does not heed them)",
               "把最后几层的权重打乱后，方法与自身的秩相关（1 表示它不理会这些层）"},
              {{"method", {"method", "方法"}, {}}},
              {}};
  for (const explain::SanityStep& step : any->sanity) {
    table.columns.push_back(
        {fmt::format("layers_{}", step.layers),
         {fmt::format("last {}", step.layers), fmt::format("最后 {} 层", step.layers)},
         {}});
  }
  for (const MethodReport& method : report.methods) {
    if (method.sanity.empty()) continue;
    std::vector<Cell> row = {method.attribution.name};
    for (const explain::SanityStep& step : method.sanity) row.emplace_back(spread(step.agreement));
    table.rows.push_back(std::move(row));
  }
  return {std::move(table)};
}

std::vector<Effect> effects_of(const Report& report) {
  const explain::IntegratedGradients& ig = report.integrated;
  const double gap = std::fabs(ig.difference) > 0 ? ig.gap / std::fabs(ig.difference) : ig.gap;
  return {{"integrated_gradients_are_complete",
           {"Integrated gradients sum to what the target gains over the baseline.",
            "积分梯度之和等于目标相对基线的增量。"},
           {fmt::format("{} steps leave a gap of {} of {}.", ig.steps, percent(gap),
                        short_number(ig.difference)),
            fmt::format("{} 步，误差为 {} 的 {}。", ig.steps, short_number(ig.difference),
                        percent(gap))},
           gap < 0.05}};
}

}  // namespace

Experiment explained_text(const Report& report, const Text& title, std::string command) {
  Experiment experiment;
  experiment.name = "explain";
  experiment.section = 8;
  experiment.command = std::move(command);
  experiment.title = title;
  for (const Text& sentence : report.summary) {
    experiment.explanation.english += sentence.english + "\n";
    experiment.explanation.chinese += sentence.chinese + "\n";
  }
  experiment.token_maps.push_back(token_maps(report));
  experiment.heat_maps.push_back(weight_maps(report));
  experiment.charts.push_back(
      curve_chart(report, "deletion",
                  {"Tokens taken away, the most important first: steep is good",
                   "按重要性逐个去掉 token：越陡越好"},
                  &explain::Curves::deletion));
  experiment.charts.push_back(
      curve_chart(report, "insertion",
                  {"Tokens put back, the most important first: steep is good",
                   "按重要性逐个放回 token：越陡越好"},
                  &explain::Curves::insertion));
  experiment.tables = {faith_table(report), head_table(report), part_table(report)};
  for (Table& table : sanity_tables(report)) experiment.tables.push_back(std::move(table));
  experiment.effects = effects_of(report);
  experiment.seen = report.summary.back();
  return experiment;
}

}  // namespace qkv::lab
