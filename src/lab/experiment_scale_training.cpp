#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "lab/experiment_scale_training.h"
#include "lab/experiment_training.h"
#include "lab/text_style.h"

namespace qkv::lab {
namespace {

constexpr Index kSteps = 240;
constexpr Index kModelWidth = 64;
constexpr double kRight = 0.9;  // of the answers: the task is learned

struct ScaleRow {
  Index width = 0;  ///< Dk
  bool scaled = true;
  TrainedVariant variant;
  double gradient_spread =
      0;  ///< standard deviation of the gradient's norm over its mean, over the first half of the steps
};

TrainingSetup setup_of(const Task& task, Index width, bool scaled) {
  TrainingSetup setup = recall_setup(task, kSteps);
  setup.decoder.model_width = kModelWidth;
  setup.decoder.heads = 1;
  setup.decoder.head_width = width;
  if (!scaled) setup.decoder.changes.emplace_back().bug = AttentionBug::ScaleMissing;
  setup.training.evaluate_every = kSteps / 12;
  return setup;
}

double relative_spread(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / count) / mean;
}

double gradient_spread(const TrainedVariant& variant) {
  double sum = 0;
  for (const TrainedRun& run : variant.runs) {
    const auto& norms = run.history.gradient_norm;
    sum += relative_spread({norms.begin(), norms.begin() + kSteps / 2});
  }
  return sum / static_cast<double>(variant.runs.size());
}

std::vector<ScaleRow> measure(const ExperimentOptions& options) {
  const Task task = plain_recall();
  std::vector<ScaleRow> rows;
  for (const Index width : {Index{64}, Index{256}}) {
    for (const bool scaled : {true, false}) {
      const Text name = {fmt::format("Dk = {}, {}", width, scaled ? "scaled" : "not scaled"),
                         fmt::format("Dk = {}，{}", width, scaled ? "缩放" : "不缩放")};
      const double begin = 0.5 + 0.12 * static_cast<double>(rows.size());
      TrainedVariant variant =
          train_variant(name, setup_of(task, width, scaled), options.quick ? 2 : 4, options,
                        {"training, " + name.english, begin, begin + 0.12});
      const double spread = gradient_spread(variant);
      rows.push_back({width, scaled, std::move(variant), spread});
    }
  }
  return rows;
}

/// The first step at which every seed was evaluated to know the task; absent where one never did.
std::optional<Index> steps_until_learned(const TrainedVariant& variant) {
  const std::size_t evaluations = variant.runs.front().history.held_out.size();
  for (std::size_t i = 0; i < evaluations; ++i) {
    const bool all = std::ranges::all_of(variant.runs, [&](const TrainedRun& run) {
      return run.history.held_out[i].evaluation.accuracy >= kRight;
    });
    if (all) return variant.runs.front().history.held_out[i].step;
  }
  return std::nullopt;
}

Cell steps_cell(const TrainedVariant& variant) {
  const auto steps = steps_until_learned(variant);
  if (steps) return *steps;
  return Text{fmt::format("not in {}", kSteps), fmt::format("{} 步内未学会", kSteps)};
}

Table training_table(const std::vector<ScaleRow>& rows) {
  Table table{"training",
              {fmt::format("A model of one head learns to recall, {} steps", kSteps),
               fmt::format("单头模型学习回忆，训练 {} 步", kSteps)},
              {{"head_width", same("Dk"), {}},
               {"scale", {"scale", "缩放"}, {}},
               {"loss", {"held-out loss", "留出集损失"}, same("nat")},
               {"accuracy", {"held-out accuracy", "留出集准确率"}, {}},
               {"learned", {"steps until 90 % are right", "答对 90 % 所需步数"}, {}},
               {"gradient_spread",
                {"spread of the gradient's norm", "梯度范数的波动"},
                {"of its mean", "相对均值"}}},
              {}};
  for (const ScaleRow& row : rows) {
    table.rows.push_back({row.width, std::string(row.scaled ? "1/√Dk" : "1"), row.variant.loss(),
                          row.variant.accuracy(), steps_cell(row.variant),
                          Measured{row.gradient_spread, {}, {}}});
  }
  return table;
}

Chart gradient_chart(const std::vector<ScaleRow>& rows) {
  Chart chart{"gradient_norms",
              {"Norm of the gradient of all parameters", "全部参数的梯度范数"},
              {{"step", "步数"}, false},
              {{"norm", "范数"}, true},
              {}};
  for (const ScaleRow& row : rows) {
    Series series{row.variant.name, {}, row.variant.runs.front().history.gradient_norm, {}, {}};
    series.x.resize(series.y.size());
    std::iota(series.x.begin(), series.x.end(), 1.0);
    chart.series.push_back(std::move(series));
  }
  return chart;
}

Effect training_effect(const std::vector<ScaleRow>& rows) {
  const TrainedVariant& scaled = rows[2].variant;
  const TrainedVariant& unscaled = rows[3].variant;
  const auto text = [](const Measured& loss) { return short_number(loss.value); };
  return {
      "training_needs_the_scale",
      {"Without the scale a wide head learns worse.", "不缩放时，宽的头学得更差。"},
      {fmt::format(
           "Dk = {}: loss {} and {} right with the scale, {} and {} without; Dk = {}: {} and {}.",
           rows[2].width, text(scaled.loss()), percent(scaled.accuracy().value),
           text(unscaled.loss()), percent(unscaled.accuracy().value), rows[0].width,
           text(rows[0].variant.loss()), text(rows[1].variant.loss())),
       fmt::format(
           "Dk = {}：缩放后损失 {}、答对 {}，不缩放为 {}、{}；Dk = {} 时损失分别为 {} 与 {}。",
           rows[2].width, text(scaled.loss()), percent(scaled.accuracy().value),
           text(unscaled.loss()), percent(unscaled.accuracy().value), rows[0].width,
           text(rows[0].variant.loss()), text(rows[1].variant.loss()))},
      unscaled.loss().value > 2 * scaled.loss().value};
}

}  // namespace

void add_scale_training(const ExperimentOptions& options, Experiment& experiment) {
  const std::vector<ScaleRow> rows = measure(options);
  experiment.tables.push_back(training_table(rows));
  experiment.charts.push_back(loss_chart(
      "training_loss", {"Held-out loss, with and without the scale", "缩放与不缩放的留出集损失"},
      rows, &ScaleRow::variant));
  experiment.charts.push_back(gradient_chart(rows));
  experiment.effects.push_back(training_effect(rows));
}

}  // namespace qkv::lab
