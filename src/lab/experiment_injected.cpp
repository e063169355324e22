#include "lab/experiment_injected.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <string>
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

}  // namespace

void add_injected_bug(const ExperimentOptions& options, Experiment& experiment) {
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
  experiment.tables.push_back(std::move(table));
  experiment.effects.push_back(
      {"injected_bug_is_caught",
       {fmt::format("A test would have caught {}.", title.english),
        fmt::format("本可以有测试发现 {}。", title.chinese)},
       {fmt::format(
            "Caught by: {}. Models whose name ends in \u201c+ {}\u201d were trained with it.",
            fmt::join(english, "; "), class_of(bug)),
        fmt::format("能发现它的：{}。名字以“+ {}”结尾的模型带着它训练。", fmt::join(chinese, "；"),
                    class_of(bug))},
       !english.empty()});
}

}  // namespace qkv::lab
