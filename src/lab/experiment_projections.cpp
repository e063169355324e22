// §1: what separate projections for matching and payload buy.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lab/experiment_runs.h"
#include "lab/experiment_training.h"
#include "lab/text_style.h"

namespace qkv::lab {
namespace {

constexpr Index kModelWidth = 64;
constexpr Index kSteps = 240;
constexpr Index kNarrow = 8;
constexpr Index kShownSequences = 2;

struct ProjectionRow {
  Tying tying = Tying::None;
  Index head_width = 0;
  TrainedVariant variant;
  Measured weight_on_itself;  ///< mean weight that a query gives its own token
};

Text tying_name(Tying tying) {
  switch (tying) {
    case Tying::QueryIsKey:
      return same("W_q = W_k");
    case Tying::KeyIsValue:
      return same("W_k = W_v");
    default:
      return {"separate", "各自独立"};
  }
}

Text row_name(Tying tying, Index head_width) {
  const Text name = tying_name(tying);
  return {fmt::format("{}, Dh = {}", name.english, head_width),
          fmt::format("{}，Dh = {}", name.chinese, head_width)};
}

TrainingSetup setup_of(const Task& task, Tying tying, Index head_width) {
  TrainingSetup setup = recall_setup(task, kSteps);
  setup.decoder.model_width = kModelWidth;
  setup.decoder.heads = 1;
  setup.decoder.head_width = head_width;
  setup.decoder.changes.emplace_back().tying = tying;
  setup.training.evaluate_every = kSteps / 8;
  return setup;
}

TokenBatch shown_batch(const Task& task, Index sequences, std::uint64_t seed) {
  Random random(seed);
  return task.held_out(sequences, random);
}

Measured weight_on_itself(const TrainedVariant& variant, const Task& task, std::uint64_t seed) {
  const TokenBatch batch = shown_batch(task, 64, seed);
  std::vector<double> means;
  for (const TrainedRun& run : variant.runs) {
    const DecoderResult<float> result = run.decoder.forward(batch, ReturnWeights::Yes);
    const Tensor<float, 4>& weights = *result.blocks.front().weights();
    double sum = 0;
    double count = 0;
    for (Index b = 0; b < weights.shape(0); ++b) {
      for (Index t = 0; t < weights.shape(2); ++t) {
        if (batch.targets(b, t) == kIgnoredTarget) continue;
        sum += static_cast<double>(weights(b, 0, t, t));
        ++count;
      }
    }
    means.push_back(sum / count);
  }
  return over_seeds(means);
}

std::vector<ProjectionRow> measure(const Task& task, const ExperimentOptions& options) {
  std::vector<ProjectionRow> rows;
  for (const Index head_width : {kModelWidth, kNarrow}) {
    for (const Tying tying : {Tying::None, Tying::QueryIsKey, Tying::KeyIsValue}) {
      const auto done = static_cast<double>(rows.size());
      const Text name = row_name(tying, head_width);
      TrainedVariant variant =
          train_variant(name, setup_of(task, tying, head_width), options.quick ? 2 : 4, options,
                        {name.english, done / 6, (done + 1) / 6});
      const Measured itself = weight_on_itself(variant, task, options.seed);
      rows.push_back({tying, head_width, std::move(variant), itself});
    }
  }
  return rows;
}

Table recall_table(const std::vector<ProjectionRow>& rows) {
  Table table{"recall",
              {fmt::format("One layer, one head, recall of 8 pairs, after {} steps", kSteps),
               fmt::format("单层单头，回忆 8 对键值，训练 {} 步后", kSteps)},
              {{"projections", {"projections", "投影"}, {}},
               {"head_width", same("Dh"), {}},
               {"parameters", {"parameters", "参数量"}, {}},
               {"loss", {"held-out loss", "留出集损失"}, same("nat")},
               {"accuracy", {"held-out accuracy", "留出集准确率"}, {}},
               {"itself", {"weight of a query on its own token", "query 对自身 token 的权重"}, {}}},
              {}};
  for (const ProjectionRow& row : rows) {
    table.rows.push_back({tying_name(row.tying), row.head_width,
                          row.variant.runs.front().decoder.parameter_count(), row.variant.loss(),
                          row.variant.accuracy(), row.weight_on_itself});
  }
  return table;
}

HeatMaps recall_maps(const std::vector<ProjectionRow>& rows, const Task& task, std::uint64_t seed) {
  const TokenBatch batch = shown_batch(task, kShownSequences, seed);
  HeatMaps maps;
  maps.key = "weights";
  maps.title = {"Weights after training: 8 pairs, then 4 queries",
                "训练后的权重：前 8 个是键值对，后 4 个是查询"};
  for (const ProjectionRow& row : rows) {
    const DecoderResult<float> result =
        row.variant.runs.front().decoder.forward(batch, ReturnWeights::Yes);
    maps.variants.push_back(
        heat_map_variant(row.variant.name, result.blocks.front().weights()->view()));
  }
  maps.predict = {
      "With W_q = W_k a query and a key of the same token are the same vector. Where will the last "
      "four rows look?",
      "W_q = W_k 时，同一 token 的 query 与 key 是同一个向量。最后四行会看向哪里？"};
  maps.reveal = {
      "At themselves: a vector's dot product with itself is its squared length, which others of "
      "that length cannot exceed.",
      "看向自己：向量与自身的点积是长度的平方，同样长的其他向量都超不过它。"};
  return maps;
}

std::vector<Effect> effects_of(const std::vector<ProjectionRow>& rows) {
  const auto accuracy = [&](std::size_t row) { return rows[row].variant.accuracy(); };
  const auto loss = [&](std::size_t row) { return rows[row].variant.loss().value; };
  const auto text = [](const Measured& part) { return percent(part.value); };
  return {
      {"separate_projections_recall",
       {"With separate projections one head finds a key's token and brings its value.",
        "投影各自独立时，一个头就能按键找到 token 并取回它的值。"},
       {fmt::format("{} and {} of the answers are right with heads of {} and {}; chance is 1/16.",
                    text(accuracy(0)), text(accuracy(3)), kModelWidth, kNarrow),
        fmt::format("头宽 {} 与 {} 时答对 {} 与 {}；随机猜是 1/16。", kModelWidth, kNarrow,
                    text(accuracy(0)), text(accuracy(3)))},
       accuracy(0).value > 0.9 && accuracy(3).value > 0.9},
      {"tied_matching_finds_itself",
       {"With W_q = W_k a wide head does not learn to look for another token: the best match of a "
        "vector is itself.",
        "W_q = W_k 时，宽的头学不会去找别的 token：向量最匹配的是它自己。"},
       {fmt::format("Dh = {}: {} right in place of {}; a query gives {} of its weight to its own "
                    "token, with separate projections {}.",
                    kModelWidth, text(accuracy(1)), text(accuracy(0)),
                    percent(rows[1].weight_on_itself.value),
                    percent(rows[0].weight_on_itself.value)),
        fmt::format(
            "Dh = {}：答对 {}，独立投影为 {}；query 把 {} 的权重给了自身 token，独立投影时是 {}。",
            kModelWidth, text(accuracy(1)), text(accuracy(0)),
            percent(rows[1].weight_on_itself.value), percent(rows[0].weight_on_itself.value))},
       accuracy(1).value < 0.5 * accuracy(0).value &&
           rows[1].weight_on_itself.value > rows[0].weight_on_itself.value},
      {"tied_payload_competes",
       {"With W_k = W_v the few components of a narrow head must hold both what is matched and "
        "what is brought.",
        "W_k = W_v 时，窄头的少数几维既要用于匹配，又要承载内容。"},
       {fmt::format("Dh = {}: loss {} in place of {}.", kNarrow, short_number(loss(5)),
                    short_number(loss(3))),
        fmt::format("Dh = {}：损失 {}，独立投影为 {}。", kNarrow, short_number(loss(5)),
                    short_number(loss(3)))},
       loss(5) > 5 * loss(3)},
      {"width_changes_the_price",
       {"Neither holds in general: a wide head has room for match and payload, and a narrow one "
        "learns to tell its own token apart.",
        "两者都不绝对：宽头容得下匹配与内容，窄头也能学会避开自身。"},
       {fmt::format("W_k = W_v with Dh = {}: {} right; W_q = W_k with Dh = {}: {} right.",
                    kModelWidth, text(accuracy(2)), kNarrow, text(accuracy(4))),
        fmt::format("W_k = W_v、Dh = {}：答对 {}；W_q = W_k、Dh = {}：答对 {}。", kModelWidth,
                    text(accuracy(2)), kNarrow, text(accuracy(4)))},
       accuracy(2).value > 0.9 && accuracy(4).value > 0.9}};
}

}  // namespace

Experiment run_projections(const ExperimentOptions& options) {
  const Task task = plain_recall();
  const std::vector<ProjectionRow> rows = measure(task, options);
  Experiment experiment;
  experiment.name = "projections";
  experiment.section = 1;
  experiment.title = {"Why three projections", "为什么要三个投影"};
  experiment.explanation = {
      "Q and K decide where a token looks, V what it brings back. A model of one layer and one "
      "head learns to recall: it reads eight "
      "pairs of a key and a value, each pair one token, and is then asked for the values of four "
      "keys. It is trained with three "
      "separate projections, with W_q = W_k, and with W_k = W_v, each with a wide and with a "
      "narrow head and from several seeds.",
      "Q 与 K 决定看哪里，V "
      "决定取回什么。这里训练一个单层单头的模型做回忆：先读八个键值对（每对是一个 "
      "token），再问其中四个键的值。分别用三个独立投影、"
      "W_q = W_k、W_k = W_v 训练，头有宽有窄，并取多个随机种子。"};
  experiment.tables.push_back(recall_table(rows));
  experiment.charts.push_back(
      loss_chart("loss", {"Held-out loss", "留出集损失"}, rows, &ProjectionRow::variant));
  experiment.heat_maps.push_back(recall_maps(rows, task, options.seed));
  experiment.effects = effects_of(rows);
  experiment.seen = {
      "Separate projections learn to recall at any width; sharing the matching matrices makes a "
      "wide head look at itself, and sharing key and "
      "value costs a narrow head its room.",
      "独立投影无论宽窄都能学会回忆；共享匹配矩阵使宽头只看自己，共享 K 与 V 则让窄头不够用。"};
  report(options, "done", 1);
  return experiment;
}

}  // namespace qkv::lab
