#include "lab/experiment_explain_effects.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "lab/text_style.h"

namespace qkv::lab {
namespace {

constexpr double kAlmostAll = 0.9;
constexpr double kAlmostNone = 0.1;

const TaskFindings& of(const std::vector<TaskFindings>& all, std::string_view key) {
  return *std::ranges::find_if(
      all, [&](const TaskFindings& findings) { return findings.task.key == key; });
}

Measured rate(const TaskFindings& findings, std::string_view method) {
  return hit_rate(findings.method(method), findings);
}

/// "100 % [96.3 %, 100 %]".
std::string rate_text(const Measured& rate) {
  return fmt::format("{} [{}, {}]", percent(rate.value), percent(*rate.low), percent(*rate.high));
}

Effect models_are_right(const std::vector<TaskFindings>& all) {
  double worst = 1;
  std::size_t fewest = all.front().models.size();
  for (const TaskFindings& findings : all) {
    for (const double accuracy : findings.accuracies()) worst = std::min(worst, accuracy);
    fewest = std::min(fewest, findings.models.size());
  }
  return {"models_are_right",
          {"The models solve their tasks: what is explained is worth explaining.",
           "模型确实解决了任务：所解释的东西值得解释。"},
          {fmt::format("{} models a task, the worst is right in {} of held-out answers.", fewest,
                       percent(worst)),
           fmt::format("每个任务 {} 个模型，最差的在留出集上也答对 {}。", fewest, percent(worst))},
          worst >= 0.99 && fewest >= 5};
}

Effect raw_attention_succeeds(const std::vector<TaskFindings>& all) {
  const Measured recall = rate(of(all, "recall"), "raw_attention_last");
  const Measured copy = rate(of(all, "copy"), "raw_attention_last");
  return {"raw_attention_succeeds",
          {"Where one layer fetches the answer, raw attention points to the token it comes from.",
           "一层就能取到答案时，原始注意力指向答案所来自的 token。"},
          {fmt::format("It ranks the relevant token first in {} (recall) and {} (copying).",
                       rate_text(recall), rate_text(copy)),
           fmt::format("相关 token 排第一的比例：{}（关联回忆）、{}（复制）。", rate_text(recall),
                       rate_text(copy))},
          *recall.low >= kAlmostAll && *copy.low >= kAlmostAll};
}

Effect raw_attention_fails(const std::vector<TaskFindings>& all) {
  const TaskFindings& relay = of(all, "relay");
  const Measured last = rate(relay, "raw_attention_last");
  const Measured mean = rate(relay, "raw_attention");
  return {"raw_attention_fails",
          {"Where the answer is carried in two steps, raw attention does not find its origin.",
           "答案分两步搬运时，原始注意力找不到它的来源。"},
          {fmt::format("It ranks the relevant token first in {} (last layer) and {} (mean of "
                       "layers); at random it would be {}.",
                       rate_text(last), rate_text(mean), percent(relay.chance)),
           fmt::format("相关 token 排第一的比例：{}（最后一层）、{}（各层平均）；随机排序为 {}。",
                       rate_text(last), rate_text(mean), percent(relay.chance))},
          *last.high <= kAlmostNone && *mean.high <= kAlmostNone};
}

Effect interventions_find_it(const std::vector<TaskFindings>& all) {
  std::vector<std::string> english;
  std::vector<std::string> chinese;
  bool holds = true;
  for (const TaskFindings& findings : all) {
    const Measured here = rate(findings, "swap_token");
    english.push_back(fmt::format("{} {}", findings.task.name.english, rate_text(here)));
    chinese.push_back(fmt::format("{} {}", findings.task.name.chinese, rate_text(here)));
    holds = holds && *here.low >= kAlmostAll;
  }
  return {"interventions_find_it",
          {"Swapping one token after the other finds the relevant one on every task.",
           "逐个换掉 token 的干预在每个任务上都能找到相关 token。"},
          {fmt::format("Ranked first: {}.", fmt::join(english, ", ")),
           fmt::format("排第一的比例：{}。", fmt::join(chinese, "，"))},
          holds};
}

Effect report_tells_them_apart(const std::vector<TaskFindings>& all) {
  const TaskFindings& relay = of(all, "relay");
  Index wrong = 0;
  Index right_tasks = 0;
  for (const std::string_view key : {"recall", "copy"}) {
    wrong += of(all, key).misleading;
    right_tasks += of(all, key).reports;
  }
  return {"report_tells_them_apart",
          {"The report, which does not know the answer, says where the heat map misleads.",
           "报告并不知道答案，却能说出热力图何时误导人。"},
          {fmt::format("It warns in {} of {} texts copied by relay, and in {} of {} of recall and "
                       "copying.",
                       relay.misleading, relay.reports, wrong, right_tasks),
           fmt::format("接力复制的 {} 个文本中有 {} 个发出警告；关联回忆与复制的 {} 个中有 {} 个。",
                       relay.reports, relay.misleading, right_tasks, wrong)},
          10 * relay.misleading >= 9 * relay.reports && 10 * wrong <= right_tasks};
}

Effect relay_is_named(const std::vector<TaskFindings>& all) {
  const TaskFindings& relay = of(all, "relay");
  const TaskFindings& copy = of(all, "copy");
  return {"relay_is_named",
          {"Hiding a place and swapping its token ask different questions: together they show the "
           "place through which the answer passed.",
           "屏蔽一个位置与换掉该处的 token 问的是不同的问题：合起来就能看出答案经过了哪里。"},
          {fmt::format("A relay is named in {} of {} texts copied by relay, in {} of {} of plain "
                       "copying.",
                       relay.relays, relay.reports, copy.relays, copy.reports),
           fmt::format("接力复制的 {} 个文本中有 {} 个指出了中转；普通复制的 {} 个中有 {} 个。",
                       relay.reports, relay.relays, copy.reports, copy.relays)},
          // Two heads that read different places stand in for each other where one place is hidden.
          2 * relay.relays > relay.reports && 10 * copy.relays <= copy.reports};
}

Effect faith_tests_agree(const std::vector<TaskFindings>& all) {
  const auto area = [&](std::string_view task, std::string_view method) {
    return over_seeds(of(all, task).method(method).faith.deletion).value;
  };
  const double random = over_seeds(of(all, "relay").random.deletion).value;
  const double random_recall = over_seeds(of(all, "recall").random.deletion).value;
  const double raw = area("relay", "raw_attention_last");
  const double integrated = area("relay", "integrated_gradients");
  const double recall = area("recall", "raw_attention_last");
  return {
      "deletion_tells_chance_from_skill",
      {"Tests of faith need no known answer, and tell the same: on the relay raw attention is "
       "no better than chance.",
       "忠实性检验不需要已知答案，结论相同：在接力任务上，原始注意力并不比随机好。"},
      {fmt::format("Deletion area on the relay: raw attention {:.2f}, random {:.2f}, integrated "
                   "gradients {:.2f}; on recall raw attention {:.2f}, random {:.2f}.",
                   raw, random, integrated, recall, random_recall),
       fmt::format("删除曲线面积，接力：原始注意力 {:.2f}，随机 {:.2f}，积分梯度 "
                   "{:.2f}；关联回忆：原始注意力 {:.2f}，随机 {:.2f}。",
                   raw, random, integrated, recall, random_recall)},
      raw >= random && integrated < 0.5 * random && recall < 0.7 * random_recall};
}

Effect rollout_sums_to_one(const std::vector<TaskFindings>& all) {
  double worst = 0;
  for (const TaskFindings& findings : all) worst = std::max(worst, findings.rollout_error);
  return {"rollout_rows_sum_to_one",
          {"Rows of the rollout sum to 1: it says where attention went, and nothing of values.",
           "rollout 的每一行之和为 1：它说明注意力去了哪里，与 value 无关。"},
          {fmt::format("Largest departure: {}.", short_number(worst)),
           fmt::format("最大偏差：{}。", short_number(worst))},
          worst < 1e-12};
}

Effect gap_shrinks(const GapFindings& gaps) {
  // By what the mean gap of the seeds is divided when the steps double: one seed's may pass through 0.
  const auto mean = [&](std::size_t at) {
    double sum = 0;
    for (const std::vector<double>& gap : gaps.gaps) sum += gap[at];
    return sum / static_cast<double>(gaps.gaps.size());
  };
  const std::size_t last = gaps.steps.size() - 1;
  const double before = mean(last - 2) / mean(last - 1);
  const double factor = mean(last - 1) / mean(last);
  return {
      "gap_shrinks",
      {"The gap of integrated gradients falls with the square of the steps.",
       "积分梯度的缺口随步数的平方缩小。"},
      {fmt::format("From {} to {} to {} steps it is divided by {:.3f} and by {:.3f}; theory says "
                   "4.",
                   gaps.steps[last - 2], gaps.steps[last - 1], gaps.steps[last], before, factor),
       fmt::format("步数从 {} 到 {} 再到 {}，缺口先后缩小为 1/{:.3f} 和 1/{:.3f}；理论值为 4。",
                   gaps.steps[last - 2], gaps.steps[last - 1], gaps.steps[last], before, factor)},
      std::fabs(factor - 4) < 0.4};
}

Effect heat_maps_show_the_mask(const std::vector<NamedHeads>& heads) {
  const auto violations = [](const NamedHeads& model) {
    return std::ranges::count_if(model.heads, [](const explain::HeadProfile& head) {
      return head.kind == explain::HeadKind::MaskViolation;
    });
  };
  std::ptrdiff_t right = 0;
  for (std::size_t i = 0; i + 1 < heads.size(); ++i) right += violations(heads[i]);
  const NamedHeads& leaking = heads.back();
  return {"heat_maps_show_the_mask",
          {"What heat maps are good for: a mask that leaks shows in every head.",
           "热力图擅长的：泄漏的 mask 在每个头里都看得见。"},
          {fmt::format("{} of {} heads of the model with a mask off by one are caught, {} heads of "
                       "the others.",
                       violations(leaking), leaking.heads.size(), right),
           fmt::format("mask 差一位的模型有 {}/{} 个头被发现，其他模型有 {} 个。",
                       violations(leaking), leaking.heads.size(), right)},
          violations(leaking) == static_cast<std::ptrdiff_t>(leaking.heads.size()) && right == 0};
}

}  // namespace

std::vector<Effect> explain_effects(const std::vector<TaskFindings>& all, const GapFindings& gaps,
                                    const std::vector<NamedHeads>& heads) {
  return {models_are_right(all),         raw_attention_succeeds(all),  raw_attention_fails(all),
          interventions_find_it(all),    report_tells_them_apart(all), relay_is_named(all),
          faith_tests_agree(all),        rollout_sums_to_one(all),     gap_shrinks(gaps),
          heat_maps_show_the_mask(heads)};
}

}  // namespace qkv::lab
