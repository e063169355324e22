// §9: one bug after the other is put into the attention. Which tests catch it, and what does training say?
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lab/bug_tests.h"
#include "lab/experiment_runs.h"
#include "lab/experiment_training.h"
#include "lab/text_style.h"

namespace qkv::lab {
namespace {

/// A bug, and what each of the tests found; no bug: the right attention.
struct Tested {
  std::optional<AttentionBug> bug;
  std::vector<Found> found;  ///< in the order of the tests
};

std::vector<Tested> test_all(const ExperimentOptions& options) {
  std::vector<Tested> all = {{}};
  for (const AttentionBug bug : attention_bugs()) all.push_back({bug, {}});
  for (std::size_t i = 0; i < all.size(); ++i) {
    const TestedAttention attention(all[i].bug, options.seed);
    for (const BugTest& test : bug_tests()) all[i].found.push_back(run_test(test, attention));
    report(options, "tests", 0.3 * static_cast<double>(i) / static_cast<double>(all.size()));
  }
  return all;
}

std::string name_of(const Tested& tested) { return std::string(qkv::name_of(*tested.bug)); }

/// What a test found of a bug.
const Found& found_by(const Tested& tested, std::string_view key) {
  const auto tests = bug_tests();
  const auto at = std::ranges::find(tests, key, &BugTest::key);
  return tested.found[static_cast<std::size_t>(at - tests.begin())];
}

Table caught_table(const std::vector<Tested>& all) {
  Table table{"caught",
              {"Which test catches which bug: ✗ is caught, · is not",
               "哪个测试能发现哪个错误：✗ 表示发现，· 表示没发现"},
              {{"bug", {"bug", "错误"}, {}}, {"class", {"class", "类别"}, {}}},
              {}};
  for (const BugTest& test : bug_tests())
    table.columns.push_back({std::string(test.key), test.short_name, {}});
  table.columns.push_back({"named", {"named by qkv check", "qkv check 的诊断"}, {}});
  for (const Tested& tested : all) {
    std::vector<Cell> row;
    row.emplace_back(tested.bug ? Cell(name_of(tested)) : Cell(Text{"none", "无"}));
    row.emplace_back(tested.bug ? std::string(class_of(*tested.bug)) : std::string("–"));
    for (const Found& found : tested.found) row.emplace_back(std::string(found.caught ? "✗" : "·"));
    const std::string& names = tested.found.back().note;
    row.emplace_back(names.empty() ? Cell(Text{"nothing wrong", "无误"}) : Cell(names));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table tests_table(const std::vector<Tested>& all) {
  Table table{
      "tests",
      {"The tests: T = H = 8, 4 kv heads, causal, a window of 5, 3 tokens of padding on the "
       "left, float64",
       "各个测试：T = H = 8，4 个 kv head，因果，窗口为 5，左侧 3 个补齐 token，float64"},
      {{"test", {"test", "测试"}, {}},
       {"measured", {"what it measures", "测量什么"}, {}},
       {"allowed", {"allowed", "允许值"}, {}},
       {"right", {"without a bug", "没有错误时"}, {}},
       {"bugs", {"bugs it catches", "发现的错误数"}, {}}},
      {}};
  for (std::size_t i = 0; i < bug_tests().size(); ++i) {
    const BugTest& test = bug_tests()[i];
    const auto caught = std::ranges::count_if(
        all, [&](const Tested& tested) { return tested.bug && tested.found[i].caught; });
    table.rows.push_back({test.name, test.measured, Measured{test.allowed, {}, {}},
                          Measured{all.front().found[i].number, {}, {}},
                          static_cast<std::int64_t>(caught)});
  }
  return table;
}

/// Recall with misleading padding on the left, at sizes on which every bug changes what is computed.
TrainingSetup setup_of(const Task& task, const std::optional<AttentionBug>& bug, bool quick) {
  TrainingSetup setup = recall_setup(task, quick ? 120 : 240);
  setup.decoder.heads = task.tokens;
  setup.decoder.kv_heads = task.tokens / 2;
  setup.decoder.window = task.tokens - 1;
  setup.decoder.changes.emplace_back().bug = bug;
  setup.training.evaluate_every = setup.training.steps / 6;
  return setup;
}

std::vector<TrainedVariant> train_all(const std::vector<Tested>& all,
                                      const ExperimentOptions& options) {
  const Task task = misleading_recall();
  ExperimentOptions plain = options;
  plain.inject.reset();  // each has its own
  std::vector<TrainedVariant> variants;
  for (const Tested& tested : all) {
    const Text name = tested.bug ? same(name_of(tested)) : Text{"none", "无"};
    const double width = 0.7 / static_cast<double>(all.size());
    const double begin = 0.3 + width * static_cast<double>(variants.size());
    variants.push_back(train_variant(name, setup_of(task, tested.bug, options.quick),
                                     options.quick ? 1 : 3, plain,
                                     {"training, bug: " + name.english, begin, begin + width}));
  }
  return variants;
}

Table training_table(const std::vector<TrainedVariant>& variants) {
  Table table{
      "training",
      {"Trained with each bug on recall with padding", "带着各个错误训练（含补齐的回忆任务）"},
      {{"bug", {"bug", "错误"}, {}},
       {"first", {"first training loss", "最初的训练损失"}, same("nat")},
       {"loss", {"held-out loss", "留出集损失"}, same("nat")},
       {"accuracy", {"held-out accuracy", "留出集准确率"}, {}}},
      {}};
  for (const TrainedVariant& variant : variants) {
    table.rows.push_back(
        {variant.name, Measured{variant.first_loss(), {}, {}}, variant.loss(), variant.accuracy()});
  }
  return table;
}

Effect oracle_effect(const std::vector<Tested>& all) {
  std::vector<std::string> unnamed;
  bool holds = true;
  for (const Tested& tested : all) {
    const Found& by_oracle = found_by(tested, "oracle");
    const Found& by_check = found_by(tested, "check");
    if (!tested.bug) {
      holds = holds && !by_oracle.caught && !by_check.caught;
      continue;
    }
    holds = holds && by_oracle.caught && by_check.caught;
    if (by_check.note.find(class_of(*tested.bug)) == std::string::npos)
      unnamed.push_back(name_of(tested));
  }
  const std::size_t bugs = all.size() - 1;
  return {
      "oracle_catches_every_bug",
      {"The oracle catches every bug and clears the right attention, and `qkv check` names the "
       "class.",
       "参考实现能发现每一个错误，也不冤枉正确的写法；`qkv check` 能说出错误的类别。"},
      {fmt::format("{} bugs, {} named.{}", bugs, bugs - unnamed.size(),
                   unnamed.empty() ? "" : fmt::format(" Not named: {}.", fmt::join(unnamed, ", "))),
       fmt::format("{} 个错误，{} 个说对了类别。{}", bugs, bugs - unnamed.size(),
                   unnamed.empty() ? "" : fmt::format("未说对：{}。", fmt::join(unnamed, "、")))},
      holds && unnamed.empty()};
}

Effect gradient_effect(const std::vector<Tested>& all) {
  double largest = 0;
  bool caught = false;
  for (const Tested& tested : all) {
    const Found& found = found_by(tested, "gradient");
    largest = std::max(largest, found.number);
    caught = caught || found.caught;
  }
  return {
      "gradient_check_catches_none",
      {"A gradient check says nothing about the forward pass: it is right for the wrong formula.",
       "梯度检验对前向是否正确毫无发言权：公式错了，梯度照样“正确”。"},
      {fmt::format("Largest relative difference over all bugs: {}.", short_number(largest)),
       fmt::format("所有错误中最大的相对差：{}。", short_number(largest))},
      !caught};
}

/// Tests that need neither oracle nor `qkv check`.
bool is_cheap(const BugTest& test) { return test.key != "oracle" && test.key != "check"; }

Effect cheap_effect(const std::vector<Tested>& all) {
  std::vector<std::string> missed;
  bool alarm = false;
  for (const Tested& tested : all) {
    bool caught = false;
    for (std::size_t i = 0; i < bug_tests().size(); ++i)
      caught = caught || (is_cheap(bug_tests()[i]) && tested.found[i].caught);
    if (!tested.bug) alarm = caught;
    if (tested.bug && !caught) missed.push_back(name_of(tested));
  }
  return {
      "cheap_tests_catch_all_together",
      {"No single cheap test catches every bug; all of them together do.",
       "没有哪个简单测试能单独发现所有错误，合起来则可以。"},
      {missed.empty() ? "None was missed." : fmt::format("Missed: {}.", fmt::join(missed, ", ")),
       missed.empty() ? "一个不漏。" : fmt::format("漏掉：{}。", fmt::join(missed, "、"))},
      missed.empty() && !alarm && std::ranges::none_of(bug_tests(), [&](const BugTest& test) {
        return is_cheap(test) && std::ranges::all_of(all, [&](const Tested& tested) {
                 return !tested.bug || found_by(tested, test.key).caught;
               });
      })};
}

Effect training_effect(const std::vector<TrainedVariant>& variants) {
  std::vector<std::string> not_fallen;
  for (const TrainedVariant& variant : variants) {
    if (!(variant.loss().value < 0.9 * variant.first_loss()))
      not_fallen.push_back(variant.name.english);
  }
  const auto loss = [](const TrainedVariant& variant) { return variant.loss().value; };
  double low = loss(variants[1]);
  double high = low;
  for (const TrainedVariant& variant : std::span(variants).subspan(1)) {
    low = std::min(low, loss(variant));
    high = std::max(high, loss(variant));
  }
  return {
      "training_says_little",
      {"Training looks healthy with every one of these bugs: the loss falls.",
       "带着其中任何一个错误，训练看上去都很正常：损失在下降。"},
      {fmt::format("Held-out loss from about {:.2f} to {:.2f} without a bug, {:.2f} to {:.2f} "
                   "with one.{}",
                   variants.front().first_loss(), loss(variants.front()), low, high,
                   not_fallen.empty()
                       ? ""
                       : fmt::format(" It does not fall with {}.", fmt::join(not_fallen, ", "))),
       fmt::format(
           "留出集损失从约 {:.2f} 降到：无错误 {:.2f}，有错误 {:.2f} 到 {:.2f}。{}",
           variants.front().first_loss(), loss(variants.front()), low, high,
           not_fallen.empty() ? "" : fmt::format("不下降的有 {}。", fmt::join(not_fallen, "、")))},
      not_fallen.empty()};
}

}  // namespace

Experiment run_bugs(const ExperimentOptions& options) {
  const std::vector<Tested> all = test_all(options);
  const std::vector<TrainedVariant> variants = train_all(all, options);
  Experiment experiment;
  experiment.name = "bugs";
  experiment.section = 9;
  experiment.title = {"A zoo of bugs, and the tests that catch them",
                      "错误动物园，以及能抓住它们的测试"};
  experiment.explanation = {
      "The lesson injects one bug. Here are thirteen, each in an attention that is otherwise "
      "right. "
      "Eleven tests are run on each: properties that must hold exactly, a row worked out by hand, "
      "a gradient check, and the float64 oracle. Then a small model is trained with each. "
      "`--inject CLASS` puts one of them into any experiment that trains.",
      "课程只注入了一个错误。这里有十三个，每个都放进一份其余部分正确的注意力里。对每一个运行十一个"
      "测试："
      "必须严格成立的性质、手算的一行、梯度检验，以及 float64 "
      "参考实现。然后带着每个错误训练一个小模型。"
      "`--inject CLASS` 可以把其中之一放进任何有训练的实验。"};
  experiment.tables = {caught_table(all), tests_table(all), training_table(variants)};
  experiment.charts.push_back(
      loss_chart("loss", {"Held-out loss with each bug", "带着各个错误的留出集损失"}, variants,
                 std::identity()));
  experiment.effects = {oracle_effect(all), gradient_effect(all), cheap_effect(all),
                        training_effect(variants)};
  experiment.seen = {
      "Every bug trains; a gradient check passes them all; each is caught by some property that "
      "must hold exactly, and by the oracle.",
      "每个错误都能训练，也都能通过梯度检验；但每一个都会被某条必须严格成立的性质以及参考实现"
      "抓住。"};
  report(options, "done", 1);
  return experiment;
}

}  // namespace qkv::lab
