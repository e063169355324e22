// §7: what attention costs.
#include "lab/experiment_complexity_parts.h"
#include "lab/experiment_runs.h"

namespace qkv::lab {

Experiment run_complexity(const ExperimentOptions& options) {
  Experiment experiment;
  experiment.name = "complexity";
  experiment.section = 7;
  experiment.title = {"What attention costs", "注意力的代价"};
  experiment.explanation = {
      "Scores are a matrix of T × T numbers a head: their operations grow as T²·D and, written to "
      "memory, their bytes as T². That is not all "
      "that counts. First the operations and bytes of a transformer block are counted part by "
      "part, with the lengths at which attention "
      "overtakes the linear layers, and the parts are timed on this machine. Then a training step "
      "is taken twice, with the probabilities "
      "kept in memory for the backward pass and in tiles that compute them again. Last, one more "
      "token is decoded with a KV cache and by "
      "computing everything again.\n"
      "Times and measured memory differ from run to run and from machine to machine; counts and "
      "results do not.",
      "分数是每头 T × T 的矩阵：运算量随 T²·D 增长，写进内存则字节数随 T² "
      "增长。但这不是全部。这里先逐部分数出一个 transformer block 的运算量和"
      "访存量，找出注意力追上线性层的长度，并在本机上计时；再把同一步训练做两遍，一遍把概率存进内存"
      "供反向使用，一遍分块、反向时重算；最后用 KV "
      "缓存和全部重算两种方式各解码一个 token。\n"
      "耗时与实测内存因运行和机器而异，计数与结果则不变。"};
  add_costs(options, experiment);
  const Text crossing = add_part_times(options, experiment);
  add_training_memory(options, experiment);
  add_decoding(options, experiment);
  experiment.seen = {
      "Linear layers dominate until T passes a few D; in training the probabilities fill memory "
      "unless they are computed again in tiles; "
      "decoding with a cache does little arithmetic and reads a cache that grows.",
      "T 超过 D "
      "的几倍之前，线性层占大头；训练时概率会占满内存，除非分块重算；用缓存解码时运算很少，但要读一"
      "个不断增长的缓存。"};
  experiment.seen.english += " On this machine, now: " + crossing.english;
  experiment.seen.chinese += "本机此刻：" + crossing.chinese;
  report(options, "done", 1);
  return experiment;
}

}  // namespace qkv::lab
