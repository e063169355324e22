// Training runs of experiments: the same setup from several seeds, with progress, and their curves.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lab/experiment_parts.h"
#include "model/generation.h"
#include "model/training.h"

namespace qkv::lab {

/// A model and what it is trained on.
struct TrainingSetup {
  DecoderOptions decoder;
  Task task;
  TrainingOptions training;
};

/// The decoder has the task's vocabulary, and a context as long as its sequences.
TrainingSetup setup_for(const Task& task);

/// Recall in which a pair is one token, so that one head can find it by its key and bring its value: eight pairs, then four keys
/// whose values are asked for.
Task plain_recall();
/// Recall of 8 tokens with padding on the left that holds pairs like the others, which contradict them: a batch that was filled up
/// with old data.
Task misleading_recall();
/// What learns either: one block without an MLP, in batches of 32 sequences.
TrainingSetup recall_setup(const Task& task, Index steps);

/// A part of the experiment's progress.
struct Stage {
  std::string what;
  double begin = 0;
  double end = 1;
};

struct TrainedRun {
  Decoder<float> decoder;
  TrainingHistory history;
  double seconds = 0;

  /// On held-out sequences after the last step.
  const Evaluation& last() const { return history.held_out.back().evaluation; }
};

/// Of a name ("padding-on-query-axis") or a class of the catalogue ("M2": the first of that class); capitals do not matter. Throws std::invalid_argument where no model can be
/// trained with it.
AttentionBug bug_named(const std::string& name);

/// The seed draws the weights and the batches. options.inject puts its bug into every block that has none, of models that can carry
/// it: a window and groups of heads are added where it needs them. Throws Interrupted, std::invalid_argument where options.inject
/// is no class that a model can be trained with.
TrainedRun train_once(const TrainingSetup& setup, std::uint64_t seed,
                      const ExperimentOptions& options, const Stage& stage);

/// The same setup from several seeds.
struct TrainedVariant {
  Text name;  ///< "H = 4 + M8" where a bug was injected
  std::vector<TrainedRun> runs;

  double first_loss() const;  ///< of the first run's first batch, before training
  Measured loss() const;      ///< held out, in nats
  Measured accuracy() const;  ///< held out
};
TrainedVariant train_variant(Text name, const TrainingSetup& setup, int seed_count,
                             const ExperimentOptions& options, const Stage& stage);

/// Held-out loss over the steps, with its spread over the seeds.
Series loss_series(const TrainedVariant& variant);
Chart empty_loss_chart(std::string key, Text title);

/// One line a row; `variant_of` gives its TrainedVariant.
template <class Rows, class VariantOf>
Chart loss_chart(std::string key, Text title, const Rows& rows, VariantOf variant_of) {
  Chart chart = empty_loss_chart(std::move(key), std::move(title));
  chart.series.reserve(rows.size());
  for (const auto& row : rows) chart.series.push_back(loss_series(std::invoke(variant_of, row)));
  return chart;
}

/// The text of the options, or the one that comes with the program.
std::string training_text(const ExperimentOptions& options);

/// A model with other rules and the same parameters.
Decoder<float> with_changes(const Decoder<float>& decoder, std::vector<AttentionChange> changes);

}  // namespace qkv::lab
