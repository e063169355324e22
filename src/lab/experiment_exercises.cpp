// §10: the exercises, answered by running something.
#include "lab/experiment_exercises_parts.h"
#include "lab/experiment_runs.h"

namespace qkv::lab {

Experiment run_exercises(const ExperimentOptions& options) {
  Experiment experiment;
  experiment.name = "exercises";
  experiment.section = 10;
  experiment.title = {"The exercises, answered by running them", "练习：用运行来回答"};
  experiment.explanation = {
      "Five questions: the shapes of D = 768 and H = 12; why a mask is not multiplied in after the "
      "softmax; whether more heads mean more "
      "parameters; what position 0 of a causal model sees; why the dot product is a good "
      "similarity. Each is answered by a call of the "
      "library whose numbers stand beside the answer, and where an answer does not hold in "
      "general, that is shown too.",
      "五个问题：D = 768、H = 12 时的各个形状；为什么不能在 softmax 之后再乘 "
      "mask；头数增加会不会增加参数；因果模型的第 0 个位置能看到什么；为什么点积适合作相似度。"
      "每个答案旁边都是调用本库得到的数字；答案并非处处成立的地方，也一并展示。"};
  add_shapes(options, experiment);
  add_late_mask_limits(options, experiment);
  add_parameter_counts(options, experiment);
  add_first_position(options, experiment);
  add_similarities(options, experiment);
  add_matching_training(options, experiment);
  experiment.seen = {
      "64; a late mask, even renormalised, fails once the visible weights vanish; 4·D² parameters "
      "whatever the heads; itself and the prefix; one "
      "matrix product.",
      "64；后置 mask 即便归一，可见权重下溢后也会失败；无论多少头都是 4·D² "
      "个参数；自身与前缀；一次矩阵乘法。"};
  report(options, "done", 1);
  return experiment;
}

}  // namespace qkv::lab
