// §2 and §4: how a mask enters the softmax.
#include "lab/experiment_mask_parts.h"
#include "lab/experiment_runs.h"

namespace qkv::lab {

Experiment run_mask(const ExperimentOptions& options) {
  Experiment experiment;
  experiment.name = "mask";
  experiment.section = 4;
  experiment.title = {"−∞, large negative numbers, and masks that come too late",
                      "−∞、很大的负数，以及来得太晚的 mask"};
  experiment.explanation = {
      "A mask adds 0 to the logits that a query may see and −∞ to the others, before the softmax. "
      "Code often writes a large "
      "negative number instead, or masks after the softmax. Here both are done by hand, every step "
      "rounded to float64, float32, "
      "float16 or bfloat16, on a causal sample whose first tokens are padding; beside them stands "
      "the library, where a mask is "
      "a rule and no number is added at all.\n"
      "Look at the rows that see nothing: the rows of the padding itself. Nobody reads them, and "
      "yet they decide whether the "
      "gradients of all the others are numbers.",
      "mask 在 softmax 之前给可见的 logits 加 0，给其余的加 "
      "−∞。实际代码常用一个很大的负数代替，或者在 softmax 之后才屏蔽。这里把两种"
      "写法都手写出来，每一步舍入到 float64、float32、float16 或 bfloat16，样本是因果的，开头几个 "
      "token 是补齐；旁边是本库：mask "
      "是规则，根本不往分数上加数。\n"
      "请特别留意什么都看不见的行，也就是补齐 token "
      "自己的行：没人读它们，它们却决定了其他所有梯度还是不是数。"};
  add_fills(options, experiment);
  add_late_masks(options, experiment);
  add_blind_rows(options, experiment);
  add_visible_keys(options, experiment);
  experiment.seen = {
      "Every fill works in usual rows; rows that see nothing give NaN or attend to padding, a mask "
      "after the softmax lets the "
      "future through, and only a mask that is a rule does neither.",
      "普通的行里哪种填充都行；什么都看不见的行要么得到 NaN，要么去关注补齐；softmax 之后的 mask "
      "会漏进未来；只有作为规则的 mask 两者都不会。"};
  report(options, "done", 1);
  return experiment;
}

}  // namespace qkv::lab
