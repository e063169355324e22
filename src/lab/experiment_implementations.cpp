// §5, §6 and §9: implementations held against each other.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lab/experiment_implementations_parts.h"
#include "lab/experiment_runs.h"

namespace qkv::lab {

Experiment run_implementations(const ExperimentOptions& options) {
  Experiment experiment;
  experiment.name = "implementations";
  experiment.section = 9;
  experiment.title = {"Oracle, engine and PyTorch", "参考实现、引擎与 PyTorch"};
  add_oracle_differences(options, experiment);
  const std::vector<std::string> missing = add_torch_differences(options, experiment);
  add_speeds(options, experiment);
  add_layouts(options, experiment);
  experiment.explanation = {
      "Running without an error and giving the right shape proves nothing. Here the same inputs, "
      "weights and masks go through the oracle (the "
      "formula as written, in float64), the engine and PyTorch, and outputs and gradients are "
      "compared. Then each is timed, with the memory "
      "that it takes beyond inputs and outputs; PyTorch as it is shipped, its allocator and its "
      "BLAS not tuned. Last, the engine reads "
      "inputs that lie in memory as a projection leaves them, split into heads by strides alone.",
      "能运行、形状对，并不能说明什么。这里让同样的输入、权重和 mask "
      "经过参考实现（按公式直写，float64）、引擎和 PyTorch，比较输出与梯度；再各自计时，"
      "并测量输入输出之外所用的内存（PyTorch 按原样使用，未调分配器与 "
      "BLAS）。最后让引擎直接读取投影之后原地的数据，仅靠 stride 拆成多个 head。"};
  experiment.seen = {
      "The same results to rounding, forward and backward; the engine reads strided heads without "
      "a copy, and only merging them needs one.",
      "前向与反向都只差舍入；引擎无需拷贝就能读带 stride 的 head，只有合并时才需要一次拷贝。"};
  if (!missing.empty()) {
    const std::string reasons = fmt::format("{}", fmt::join(missing, "; "));
    experiment.seen.english =
        fmt::format("NOT COMPARED with everything: {}. ", reasons) + experiment.seen.english;
    experiment.seen.chinese = fmt::format("以下未能比较：{}。", reasons) + experiment.seen.chinese;
  }
  report(options, "done", 1);
  return experiment;
}

}  // namespace qkv::lab
