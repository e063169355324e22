#include "lab/experiment_padding_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "lab/experiment_training.h"

namespace qkv::lab {
namespace {

struct PaddingKind {
  Text name;
  std::optional<AttentionBug> bug;
};

std::vector<PaddingKind> kinds() {
  return {{{"key axis (right)", "key 轴（正确）"}, std::nullopt},
          {{"head axis", "head 轴"}, AttentionBug::PaddingOnHeadAxis},
          {{"query axis", "query 轴"}, AttentionBug::PaddingOnQueryAxis},
          {{"no padding mask", "不加 padding mask"}, AttentionBug::PaddingDropped}};
}

TrainingSetup setup_of(const Task& task, const std::optional<AttentionBug>& bug) {
  TrainingSetup setup = recall_setup(task, 240);
  setup.decoder.heads = task.tokens;  // the mask on the head axis broadcasts
  setup.decoder.changes.emplace_back().bug = bug;
  setup.training.evaluate_every = setup.training.steps / 8;
  return setup;
}

Table training_table(const std::vector<TrainedVariant>& variants) {
  Table table{"training",
              {"Recall with misleading padding on the left, T = H = 8, trained with each mask "
               "(finite fill)",
               "左侧有误导性补齐的回忆任务，T = H = 8，用各种 mask 训练（有限填充）"},
              {{"mask", {"padding mask", "padding mask"}, {}},
               {"first", {"first training loss", "最初的训练损失"}, same("nat")},
               {"last", {"last training loss", "最后的训练损失"}, same("nat")},
               {"loss", {"held-out loss", "留出集损失"}, same("nat")},
               {"accuracy", {"held-out accuracy", "留出集准确率"}, {}}},
              {}};
  for (const TrainedVariant& variant : variants) {
    std::vector<double> last;
    for (const TrainedRun& run : variant.runs) last.push_back(run.history.loss.back());
    table.rows.push_back({variant.name, Measured{variant.first_loss(), {}, {}}, over_seeds(last),
                          variant.loss(), variant.accuracy()});
  }
  return table;
}

Effect training_effect(const std::vector<TrainedVariant>& variants) {
  const TrainedVariant& right = variants[0];
  const TrainedVariant& head = variants[1];
  const TrainedVariant& query = variants[2];
  const auto worse = [&](const TrainedVariant& variant) {
    return variant.accuracy().value < right.accuracy().value - 0.05 &&
           variant.loss().value < 0.8 * variant.first_loss();
  };
  return {"loss_falls_all_the_same",
          {"Trained with the mask on the wrong axis, the loss falls all the same – to a worse "
           "value, which nobody knows to be worse.",
           "mask 放错轴，训练损失照样下降——只是降到更差的值，而没人知道它更差。"},
          {fmt::format("Held-out loss from {:.2f} to {:.2f} on the head axis and {:.2f} on the "
                       "query axis; with the right mask to {:.2f}. "
                       "Right answers: {}, {} and {}.",
                       head.first_loss(), head.loss().value, query.loss().value, right.loss().value,
                       percent(head.accuracy().value), percent(query.accuracy().value),
                       percent(right.accuracy().value)),
           fmt::format("留出集损失从 {:.2f} 降到：head 轴 {:.2f}，query 轴 {:.2f}，正确 mask "
                       "{:.2f}。答对率分别为 {}、{} 和 {}。",
                       head.first_loss(), head.loss().value, query.loss().value, right.loss().value,
                       percent(head.accuracy().value), percent(query.accuracy().value),
                       percent(right.accuracy().value))},
          worse(head) && worse(query)};
}

}  // namespace

void add_padding_training(const ExperimentOptions& options, Experiment& experiment) {
  const Task task = misleading_recall();
  std::vector<TrainedVariant> variants;
  for (const PaddingKind& kind : kinds()) {
    const double begin = 0.6 + 0.1 * static_cast<double>(variants.size());
    variants.push_back(train_variant(kind.name, setup_of(task, kind.bug), options.quick ? 1 : 3,
                                     options,
                                     {"training, " + kind.name.english, begin, begin + 0.1}));
  }
  experiment.tables.push_back(training_table(variants));
  experiment.charts.push_back(loss_chart(
      "training_loss", {"Held-out loss, each with its own mask", "留出集损失，各用自己的 mask"},
      variants, std::identity()));
  experiment.effects.push_back(training_effect(variants));
}

}  // namespace qkv::lab
