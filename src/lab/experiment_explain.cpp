// §8: attention weights are not automatically an explanation.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "lab/experiment_explain_effects.h"
#include "lab/experiment_explain_tables.h"
#include "lab/experiment_runs.h"

namespace qkv::lab {
namespace {

constexpr double kTasksEnd = 0.95;

/// A model whose mask is off by one, for the heads' table.
NamedHeads leaking_heads(const ExperimentOptions& options) {
  const KnownTask task = leaking_task();
  const KnownModel model =
      train_known(task, options.seed, options, {"copying, mask off by one", kTasksEnd, 0.98});
  Random random(options.seed);
  const TokenBatch batch = task.setup.task.held_out(1, random);
  const explain::DecoderModel explained = asked(model, task.question(batch, 0, random));
  return {task.name, explain::head_profiles(explained, explained.record())};
}

HeatMaps relay_maps(const TaskFindings& relay) {
  HeatMaps maps = weight_maps(relay);
  maps.predict = {
      "The answer is the token 8 places back. Both layers' last rows show where the query looks. "
      "Do they show the token that the answer comes from?",
      "答案是 8 个位置之前的 token。两层的最后一行显示 query "
      "看向哪里。它们显示了答案真正来自的 token 吗？"};
  maps.reveal = {
      "No: its weight is exactly 0 in both. The query reads a place in between, to which the first "
      "layer had carried the symbol; which token stands there does not matter at all.",
      "没有：它的权重在两层中都恰好为 0。query 读的是中间的一个位置，第一层事先把符号搬到了那里；"
      "而那里原本是哪个 token 毫不重要。"};
  return maps;
}

}  // namespace

Experiment run_explain(const ExperimentOptions& options) {
  const FindingOptions what{.seeds = options.quick ? 5 : 8,
                            .questions = options.quick ? 20 : 50,
                            .reports = options.quick ? 3 : 10};
  const std::vector<KnownTask> tasks = known_tasks();
  std::vector<TaskFindings> all;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const double share = kTasksEnd / static_cast<double>(tasks.size());
    const double begin = share * static_cast<double>(i);
    all.push_back(
        find_on_task(tasks[i], what, options, {tasks[i].name.english, begin, begin + share}));
  }
  const TaskFindings& recall = all[0];
  const TaskFindings& relay = all[2];
  std::vector<NamedHeads> heads;
  heads.reserve(all.size() + 1);
  for (const TaskFindings& findings : all) {
    heads.push_back({findings.task.name, findings.example.heads});
  }
  heads.push_back(leaking_heads(options));
  report(options, "gaps of integrated gradients", 0.98);
  const GapFindings gaps = find_gaps(relay, options);

  Experiment experiment;
  experiment.name = "explain";
  experiment.section = 8;
  experiment.title = {"Is attention an explanation?", "注意力是解释吗？"};
  experiment.explanation = {
      "Small models learn tasks of which it is known from which token the answer comes. Fourteen "
      "attributions then say which token mattered, and are held against that knowledge and against "
      "interventions: a token is swapped, removed, hidden from attention, or delivers nothing. In "
      "two tasks the query reads the relevant token itself, and raw attention is right. In the "
      "third the symbol is carried in two steps, so that the query never sees the token that the "
      "answer comes from: the heat map shows where attention read, not what the answer depends on.",
      "小模型学习一些任务，其答案来自哪个 token 是已知的。十四种归因方法各自说出哪个 token "
      "重要，再与这一事实和干预实验对照：换掉、删除某个 token，对注意力屏蔽它，或让它不传递任何内"
      "容。在两个任务中 query 直接读取相关 "
      "token，原始注意力是对的。在第三个任务中，符号分两步搬运，"
      "query 从来看不到答案真正来自的 token：热力图显示的是注意力读了哪里，而不是答案取决于什么。"};
  experiment.tables = {task_table(all),    hit_table(all),    faith_table(recall),
                       faith_table(relay), sanity_table(all), ablation_table(relay),
                       head_table(heads),  summary_table(all)};
  experiment.charts = {deletion_chart(recall), deletion_chart(relay), gap_chart(gaps)};
  experiment.heat_maps = {weight_maps(recall), relay_maps(relay)};
  experiment.effects = explain_effects(all, gaps, heads);
  experiment.seen = {
      "A heat map tells where a head looks, which is how one finds masks that leak and heads that "
      "look at a fixed place. What the answer depends on, only interventions tell.",
      "热力图告诉你一个头看向哪里，可用来发现泄漏的 mask "
      "和只看固定位置的头。答案取决于什么，只有干预才"
      "知道。"};
  report(options, "done", 1);
  return experiment;
}

}  // namespace qkv::lab
