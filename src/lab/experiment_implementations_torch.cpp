#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "check/align.h"
#include "check/peer_plugin.h"
#include "check/python_peer.h"
#include "lab/experiment_implementations_parts.h"

namespace qkv::lab {
namespace {

/// The lesson's own case and a few more with self attention, one a mask.
std::vector<AlignCase> chosen_cases(bool quick) {
  std::vector<AlignCase> chosen;
  std::vector<AlignMask> masks = {AlignMask::Causal};
  if (!quick)
    masks.insert(masks.end(),
                 {AlignMask::None, AlignMask::CausalAndPadding, AlignMask::BiasPerHead});
  for (const AlignCase& one : align_cases()) {
    if (one.is_lesson) chosen.push_back(one);
  }
  for (const AlignMask mask : masks) {
    const auto found = std::ranges::find_if(align_cases(), [&](const AlignCase& one) {
      return !one.is_lesson && one.mask == mask && one.inputs == AlignInputs::Self;
    });
    if (found != align_cases().end()) chosen.push_back(*found);
  }
  return chosen;
}

struct Answers {
  std::vector<AlignRow> rows;
  std::vector<std::string> versions;
  std::vector<std::string> missing;
};

Answers ask(const ExperimentOptions& options) {
  Answers answers;
  AlignListener listener;
  listener.on_versions = [&](const std::vector<std::string>& versions) {
    answers.versions = versions;
  };
  listener.on_case = [&](const AlignCase&, const std::vector<AlignRow>& rows) {
    answers.rows.insert(answers.rows.end(), rows.begin(), rows.end());
  };
  listener.on_progress = [&](std::string_view doing) { report(options, doing, 0.2); };
  std::unique_ptr<Peer> cpp;
  try {
    cpp = load_torch_peer();
  } catch (const PeerMissing& why) {
    answers.missing.push_back(fmt::format("PyTorch's C++ API: {}", why.what()));
  }
  const std::unique_ptr<Peer> python = make_python_peer(std::nullopt);
  const std::vector<AlignCase> cases = chosen_cases(options.quick);
  try {
    align(cases, {python.get(), cpp.get()}, listener);
  } catch (const PeerMissing& why) {  // known before the first row
    answers.missing.push_back(fmt::format("PyTorch in Python: {}", why.what()));
    if (cpp != nullptr) align(cases, {nullptr, cpp.get()}, listener);
  }
  return answers;
}

const AlignDifference* find(const AlignRow& row, AlignQuantity quantity) {
  const auto found = std::ranges::find(row.differences, quantity, &AlignDifference::quantity);
  return found == row.differences.end() ? nullptr : &*found;
}

Cell difference_cell(const AlignRow& row, AlignQuantity quantity) {
  const AlignDifference* found = find(row, quantity);
  if (found == nullptr || !found->difference) return std::string("–");
  return Measured{*found->difference, {}, {}};
}

Cell official_cell(const AlignRow& row, AlignQuantity quantity) {
  const AlignDifference* found = find(row, quantity);
  if (found == nullptr || !found->official_error) return std::string("–");
  return Measured{*found->official_error, {}, {}};
}

Table torch_table(const Answers& answers) {
  Table table{"torch",
              {"MultiHeadAttention against PyTorch's, relative to the largest entry; float64: from "
               "PyTorch, float32: from the oracle",
               "本库 MultiHeadAttention 与 PyTorch 之差，相对最大元素；float64 与 PyTorch "
               "比，float32 与参考实现比"},
              {{"case", {"case", "用例"}, {}},
               {"function", {"PyTorch's", "PyTorch 的函数"}, {}},
               {"dtype", {"dtype", "数据类型"}, {}},
               {"forward", {"forward difference", "前向之差"}, {}},
               {"input_gradient", {"of the input's gradient", "输入梯度之差"}, {}},
               {"parameter_gradient", {"of the parameters' gradient", "参数梯度之差"}, {}},
               {"torch_forward", {"PyTorch's own forward error", "PyTorch 自身的前向误差"}, {}},
               {"torch_gradient", {"its gradient error", "其梯度误差"}, {}},
               {"verdict", {"verdict", "结论"}, {}}},
              {}};
  for (const AlignRow& row : answers.rows) {
    table.rows.push_back({row.align_case.describe(), row.function, std::string(name_of(row.dtype)),
                          difference_cell(row, AlignQuantity::Forward),
                          difference_cell(row, AlignQuantity::InputGradient),
                          difference_cell(row, AlignQuantity::ParameterGradient),
                          official_cell(row, AlignQuantity::Forward),
                          official_cell(row, AlignQuantity::InputGradient), name_of(row.verdict)});
  }
  return table;
}

/// The largest difference of a quantity among the rows of float64.
double worst(const Answers& answers, AlignQuantity quantity) {
  double largest = 0;
  for (const AlignRow& row : answers.rows) {
    const AlignDifference* found = find(row, quantity);
    if (row.dtype != DType::Float64 || found == nullptr) continue;
    largest = std::max(largest, found->difference.value_or(0));
  }
  return largest;
}

}  // namespace

std::vector<std::string> add_torch_differences(const ExperimentOptions& options,
                                               Experiment& experiment) {
  report(options, "PyTorch, where it is installed", 0.1);
  const Answers answers = ask(options);
  if (answers.rows.empty()) return answers.missing;
  experiment.tables.push_back(torch_table(answers));
  const bool agree = std::ranges::none_of(
      answers.rows, [](const AlignRow& row) { return row.verdict == AlignVerdict::Fail; });
  const double forward = worst(answers, AlignQuantity::Forward);
  const double gradient = std::max(worst(answers, AlignQuantity::InputGradient),
                                   worst(answers, AlignQuantity::ParameterGradient));
  const std::string versions = fmt::format("{}", fmt::join(answers.versions, "; "));
  experiment.effects.push_back(
      {"pytorch_agrees",
       {"With the same inputs, weights and masks PyTorch gives the same output and the same "
        "gradients.",
        "输入、权重和 mask 相同时，PyTorch 的输出与梯度都与本库一致。"},
       {fmt::format("{}: {} comparisons; in float64 the forward pass differs by {:.1e} and "
                    "gradients by {:.1e} at most.",
                    versions, answers.rows.size(), forward, gradient),
        fmt::format("{}：共 {} 项比较；float64 前向之差最大 {:.1e}，梯度之差最大 {:.1e}。",
                    versions, answers.rows.size(), forward, gradient)},
       agree});
  return answers.missing;
}

}  // namespace qkv::lab
