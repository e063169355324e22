#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "lab/experiment_exercises_parts.h"
#include "lab/experiment_training.h"
#include "lab/text_style.h"

namespace qkv::lab {
namespace {

constexpr Index kSteps = 240;
constexpr Index kWidth = 32;
constexpr double kRight = 0.9;

struct MatchingKind {
  Text name;
  Matching matching = Matching::DotProduct;
};

std::vector<MatchingKind> kinds() {
  return {{{"dot product", "点积"}, Matching::DotProduct},
          {{"cosine, times √Dh", "余弦，乘以 √Dh"}, Matching::Cosine},
          {{"additive", "加性"}, Matching::Additive}};
}

TrainingSetup setup_of(const Task& task, Matching matching) {
  TrainingSetup setup = recall_setup(task, kSteps);
  setup.decoder.heads = 1;
  setup.decoder.head_width = kWidth;
  setup.decoder.changes.emplace_back().matching = matching;
  setup.training.evaluate_every = kSteps / 8;
  return setup;
}

}  // namespace

void add_matching_training(const ExperimentOptions& options, Experiment& experiment) {
  const Task task = plain_recall();
  std::vector<TrainedVariant> variants;
  Table table{
      "matching_losses",
      {fmt::format("One head learns to recall 8 pairs, {} steps, by its way of matching", kSteps),
       fmt::format("单头学习回忆 8 对键值，训练 {} 步，按匹配方式比较", kSteps)},
      {{"matching", {"matching", "匹配方式"}, {}},
       {"parameters", {"parameters", "参数量"}, {}},
       {"loss", {"held-out loss", "留出集损失"}, same("nat")},
       {"accuracy", {"held-out accuracy", "留出集准确率"}, {}}},
      {}};
  for (const MatchingKind& kind : kinds()) {
    const double begin = 0.7 + 0.1 * static_cast<double>(variants.size());
    variants.push_back(train_variant(kind.name, setup_of(task, kind.matching),
                                     options.quick ? 1 : 3, options,
                                     {"training, " + kind.name.english, begin, begin + 0.1}));
    const TrainedVariant& variant = variants.back();
    table.rows.push_back({variant.name, variant.runs.front().decoder.parameter_count(),
                          variant.loss(), variant.accuracy()});
  }
  experiment.tables.push_back(std::move(table));
  experiment.charts.push_back(loss_chart(
      "matching_loss", {"Held-out loss by the way of matching", "各匹配方式的留出集损失"}, variants,
      std::identity()));
  const auto right = [&](std::size_t i) { return percent(variants[i].accuracy().value); };
  const auto loss = [&](std::size_t i) { return short_number(variants[i].loss().value); };
  experiment.effects.push_back(
      {"dot_product_learns",
       {"With projections that are learned, the dot product gives as many right answers as dearer "
        "additive matching (within 5 %).",
        "有了可学习的投影，点积答对的比例不输给更贵的加性匹配（相差 5 % 以内）。"},
       {fmt::format("Loss and right answers: dot product {}, {}; cosine {}, {}; additive {}, {}.",
                    loss(0), right(0), loss(1), right(1), loss(2), right(2)),
        fmt::format("损失与答对率：点积 {}、{}；余弦 {}、{}；加性 {}、{}。", loss(0), right(0),
                    loss(1), right(1), loss(2), right(2))},
       variants[0].accuracy().value > kRight &&
           variants[0].accuracy().value > variants[2].accuracy().value - 0.05});
}

}  // namespace qkv::lab
