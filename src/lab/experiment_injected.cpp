#include "lab/experiment_injected.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "check/bug_text.h"
#include "lab/bug_tests.h"
#include "lab/experiment_training.h"

namespace qkv::lab {
namespace {

Text title_of(AttentionBug bug) {
  const auto in = [&](BugLanguage language) {
    const BugText* text = find_bug_text(class_of(bug), language);
    return fmt::format("{} {} ({})", class_of(bug), text ? text->title : std::string(),
                       name_of(bug));
  };
  return {in(BugLanguage::English), in(BugLanguage::Chinese)};
}

std::string joined(const std::vector<Text>& texts, std::string Text::*language,
                   std::string_view separator) {
  std::vector<std::string> list(texts.size());
  std::ranges::transform(texts, list.begin(), [&](const Text& text) { return text.*language; });
  return fmt::format("{}", fmt::join(list, separator));
}

/// Which models were trained with it.
Text carried(const InjectedInto& into) {
  Text text;
  if (into.carriers.empty()) {
    text = {"No model of this experiment has what the bug is about, so none was trained with it.",
            "本实验的模型都不涉及这个错误，因此没有模型带着它训练。"};
    return text;
  }
  text = {fmt::format("Trained with it: {}.", joined(into.carriers, &Text::english, "; ")),
          fmt::format("带着它训练的模型：{}。", joined(into.carriers, &Text::chinese, "；"))};
  if (into.others.empty()) return text;
  text.english +=
      fmt::format(" Not trained with it: {}.", joined(into.others, &Text::english, "; "));
  text.chinese += fmt::format("没有带它的：{}。", joined(into.others, &Text::chinese, "；"));
  return text;
}

}  // namespace

void add_injected_bug(const ExperimentOptions& options, const InjectedInto& into,
                      Experiment& experiment) {
  const AttentionBug bug = bug_named(*options.inject);
  const Text title = title_of(bug);
  Table table{"injected_bug",
              {fmt::format("Injected: {}. Which tests would have caught it", title.english),
               fmt::format("注入的错误：{}。哪些测试本可以发现它", title.chinese)},
              {{"test", {"test", "测试"}, {}},
               {"measured", {"what it measures", "测量什么"}, {}},
               {"right", {"without the bug", "没有该错误时"}, {}},
               {"wrong", {"with it", "有该错误时"}, {}},
               {"verdict", {"verdict", "结论"}, {}}},
              {}};
  const TestedAttention right(std::nullopt, options.seed);
  const TestedAttention wrong(bug, options.seed);
  std::vector<std::string> english;
  std::vector<std::string> chinese;
  for (const BugTest& test : bug_tests()) {
    const Found without = run_test(test, right);
    const Found with = run_test(test, wrong);
    const std::string named = with.note.empty() ? "" : fmt::format(": {}", with.note);
    table.rows.push_back(
        {test.name, test.measured, Measured{without.number, {}, {}}, Measured{with.number, {}, {}},
         with.caught ? Text{"caught" + named, "发现" + named} : Text{"not caught", "没发现"}});
    if (!with.caught) continue;
    english.push_back(test.name.english);
    chinese.push_back(test.name.chinese);
  }
  const Text trained = carried(into);
  experiment.explanation.english += fmt::format(
      "\nA bug is injected: {}. {} What is said below of models is said of them as they are meant.",
      title.english, trained.english);
  experiment.explanation.chinese += fmt::format(
      "\n注入了一个错误：{}。{}下文对模型的描述都按其本意。", title.chinese, trained.chinese);
  experiment.tables.insert(experiment.tables.begin(), std::move(table));
  experiment.effects.push_back(
      {"injected_bug_is_caught",
       {fmt::format("A test would have caught {}.", title.english),
        fmt::format("本可以有测试发现 {}。", title.chinese)},
       {fmt::format("Caught by: {}. {}", fmt::join(english, "; "), trained.english),
        fmt::format("能发现它的：{}。{}", fmt::join(chinese, "；"), trained.chinese)},
       !english.empty()});
}

}  // namespace qkv::lab
