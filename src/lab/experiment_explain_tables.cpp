#include "lab/experiment_explain_tables.h"

#include <fmt/format.h>

#include <algorithm>

namespace qkv::lab {
namespace {

Measured plain(double value) { return {value, {}, {}}; }

Text with_source(const MethodOnTask& method) { return method.name; }

std::vector<Cell> faith_row(const Text& name, const FaithBySeed& faith) {
  return {name,
          over_seeds(faith.deletion),
          over_seeds(faith.insertion),
          over_seeds(faith.comprehensiveness),
          over_seeds(faith.sufficiency),
          over_seeds(faith.infidelity),
          over_seeds(faith.spearman),
          over_seeds(faith.kendall)};
}

/// Mean of one number over the seeds' ablations.
template <class Number>
Measured over_ablations(const TaskFindings& findings, Number number) {
  std::vector<double> values;
  for (const explain::Ablation& ablation : findings.ablations) values.push_back(number(ablation));
  return over_seeds(values);
}

void add_head_rows(const NamedHeads& model, Table& table) {
  for (const explain::HeadProfile& head : model.heads) {
    table.rows.push_back({model.name, static_cast<std::int64_t>(head.layer),
                          static_cast<std::int64_t>(head.head), plain(head.previous),
                          plain(head.self), plain(head.first),
                          static_cast<std::int64_t>(head.offset), plain(head.offset_share),
                          plain(head.entropy), plain(head.violation), head.verdict});
  }
}

}  // namespace

Measured hit_rate(const MethodOnTask& method, const TaskFindings& findings) {
  const explain::Interval interval = explain::wilson_interval(method.hits, findings.questions);
  return {static_cast<double>(method.hits) / static_cast<double>(findings.questions), interval.low,
          interval.high};
}

Table task_table(const std::vector<TaskFindings>& all) {
  Table table{"tasks",
              {"Tasks whose answer comes from a known token", "答案来自哪个 token 是已知的任务"},
              {{"task", {"task", "任务"}, {}},
               {"accuracy", {"held-out accuracy", "留出集准确率"}, {}},
               {"models", {"models", "模型数"}, {}},
               {"questions", {"questions", "问题数"}, {}},
               {"rule", {"what is asked", "问什么"}, {}}},
              {}};
  for (const TaskFindings& findings : all) {
    table.rows.push_back({findings.task.name, over_seeds(findings.accuracies()),
                          static_cast<std::int64_t>(findings.models.size()), findings.questions,
                          findings.task.rule});
  }
  return table;
}

Table hit_table(const std::vector<TaskFindings>& all) {
  Table table{"hits",
              {"How often the token ranked first is the relevant one (95 % interval)",
               "排在第一的 token 就是相关 token 的比例（95 % 区间）"},
              {{"method", {"attribution", "归因方法"}, {}}},
              {}};
  std::vector<Cell> chance = {Text{"random ranking", "随机排序"}};
  for (const TaskFindings& findings : all) {
    table.columns.push_back({findings.task.key, findings.task.name, {}});
    chance.emplace_back(plain(findings.chance));
  }
  table.columns.push_back({"source", {"source", "来源"}, {}});
  for (const MethodOnTask& method : all.front().methods) {
    std::vector<Cell> cells = {with_source(method)};
    for (const TaskFindings& findings : all) {
      cells.emplace_back(hit_rate(findings.method(method.key), findings));
    }
    cells.emplace_back(method.source);
    table.rows.push_back(std::move(cells));
  }
  chance.emplace_back(std::string());
  table.rows.push_back(std::move(chance));
  return table;
}

Table faith_table(const TaskFindings& findings) {
  Table table{"faith_" + findings.task.key,
              {"Tests of faith, " + findings.task.name.english +
                   ": the probability of the right answer while tokens are swapped",
               "忠实性检验（" + findings.task.name.chinese + "）：逐个换掉 token 时正确答案的概率"},
              {{"method", {"attribution", "归因方法"}, {}},
               {"deletion", {"deletion area (small is good)", "删除曲线面积（小为好）"}, {}},
               {"insertion", {"insertion area (large is good)", "插入曲线面积（大为好）"}, {}},
               {"comprehensiveness", {"comprehensiveness (large)", "全面性（大为好）"}, {}},
               {"sufficiency", {"sufficiency (small)", "充分性（小为好）"}, {}},
               {"infidelity", {"infidelity (0 to 1, small)", "不忠实度（0 到 1，小为好）"}, {}},
               {"spearman", {"Spearman with the intervention", "与干预的 Spearman 相关"}, {}},
               {"kendall", {"Kendall with the intervention", "与干预的 Kendall 相关"}, {}}},
              {}};
  for (const MethodOnTask& method : findings.methods) {
    table.rows.push_back(faith_row(method.name, method.faith));
  }
  table.rows.push_back(faith_row({"random scores", "随机分数"}, findings.random));
  return table;
}

Table sanity_table(const std::vector<TaskFindings>& all) {
  Table table{"sanity",
              {"Spearman of an attribution with itself after weights are shuffled: 1 means that it "
               "does not look at them",
               "打乱权重后与原归因的 Spearman 相关：1 表示该方法根本不看这些权重"},
              {{"method", {"attribution", "归因方法"}, {}}},
              {}};
  for (const TaskFindings& findings : all) {
    table.columns.push_back(
        {findings.task.key + "_last",
         {findings.task.name.english + ", last layer", findings.task.name.chinese + "，最后一层"},
         {}});
    table.columns.push_back(
        {findings.task.key + "_all",
         {findings.task.name.english + ", all layers", findings.task.name.chinese + "，所有层"},
         {}});
  }
  for (const MethodOnTask& method : all.front().methods) {
    if (method.last_shuffled.empty()) continue;
    std::vector<Cell> cells = {method.name};
    for (const TaskFindings& findings : all) {
      const MethodOnTask& here = findings.method(method.key);
      cells.emplace_back(over_seeds(here.last_shuffled));
      cells.emplace_back(over_seeds(here.all_shuffled));
    }
    table.rows.push_back(std::move(cells));
  }
  return table;
}

Table ablation_table(const TaskFindings& findings) {
  Table table{"ablation",
              {"By how much the log-probability falls without a part of the model, " +
                   findings.task.name.english,
               "去掉模型的一部分后对数概率下降多少（" + findings.task.name.chinese + "）"},
              {{"layer", {"layer", "层"}, {}},
               {"part", {"part", "部分"}, {}},
               {"fall", {"fall", "下降"}, same("nat")}},
              {}};
  const Tensor<double, 2>& heads = findings.ablations.front().heads;
  struct PartOf {
    Text name;
    std::vector<double> explain::Ablation::*falls;
  };
  const std::vector<PartOf> parts = {
      {{"attention", "注意力"}, &explain::Ablation::attention},
      {{"residual past attention", "绕过注意力的残差"}, &explain::Ablation::attention_skip},
      {same("MLP"), &explain::Ablation::mlp},
      {{"residual past MLP", "绕过 MLP 的残差"}, &explain::Ablation::mlp_skip},
      {{"whole layer", "整层"}, &explain::Ablation::layers}};
  for (Index i = 0; i < heads.shape(0); ++i) {
    for (Index h = 0; h < heads.shape(1); ++h) {
      table.rows.push_back({i, Text{fmt::format("head {}", h), fmt::format("头 {}", h)},
                            over_ablations(findings, [&](const explain::Ablation& ablation) {
                              return ablation.heads(i, h);
                            })});
    }
    for (const PartOf& part : parts) {
      table.rows.push_back(
          {i, part.name, over_ablations(findings, [&](const explain::Ablation& ablation) {
             return (ablation.*part.falls)[static_cast<std::size_t>(i)];
           })});
    }
  }
  return table;
}

Table head_table(const std::vector<NamedHeads>& models) {
  Table table{
      "heads",
      {"What heat maps are good for: where each head looks", "热力图擅长的：每个头看向哪里"},
      {{"task", {"task", "任务"}, {}},
       {"layer", {"layer", "层"}, {}},
       {"head", {"head", "头"}, {}},
       {"previous", {"previous token", "前一个 token"}, {}},
       {"self", {"itself", "自身"}, {}},
       {"first", {"first token", "第一个 token"}, {}},
       {"offset", {"commonest distance", "最常见的距离"}, {}},
       {"offset_share", {"weight at it", "该距离上的权重"}, {}},
       {"entropy", {"entropy, of the most possible", "熵（占最大值）"}, {}},
       {"violation", {"weight where the mask forbids", "mask 禁止处的权重"}, {}},
       {"verdict", {"mostly at (share of its weight)", "主要看（占其权重）"}, {}}},
      {}};
  for (const NamedHeads& model : models) add_head_rows(model, table);
  return table;
}

Table summary_table(const std::vector<TaskFindings>& all) {
  Table table{
      "reports",
      {"What the report says of one question of each task", "报告对每个任务的一个问题怎么说"},
      {{"task", {"task", "任务"}, {}}, {"says", {"in plain words", "平实的话"}, {}}},
      {}};
  for (const TaskFindings& findings : all) {
    for (const Text& sentence : findings.example.summary) {
      table.rows.push_back({findings.task.name, sentence});
    }
  }
  return table;
}

}  // namespace qkv::lab
