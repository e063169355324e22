#include "lab/experiment_training.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "bench/clock.h"

namespace qkv::lab {
namespace {

bool has_padding(const Task& task) {
  Random random(0);
  return task.training(1, random).keep.has_value();
}

/// Whether the models of a setup have what the bug is about.
bool can_carry(const TrainingSetup& setup, AttentionBug bug) {
  const DecoderOptions& decoder = setup.decoder;
  const Index kv_heads = decoder.kv_heads.value_or(decoder.heads);
  switch (bug) {
    case AttentionBug::WindowOffByOne:
      return decoder.window.has_value();
    case AttentionBug::KvHeadsTiled:
      return kv_heads > 1 && kv_heads < decoder.heads;
    case AttentionBug::PaddingDropped:
    case AttentionBug::PaddingFilled:
    case AttentionBug::PaddingOnQueryAxis:
      return has_padding(setup.task);
    case AttentionBug::PaddingOnHeadAxis:
      return has_padding(setup.task) && setup.task.tokens == decoder.heads;
    case AttentionBug::ScaleMissing:
    case AttentionBug::ScaleTwice:
      return std::ranges::none_of(decoder.changes, [](const AttentionChange& change) {
        return change.matching == Matching::Additive;  // its scale is 1
      });
    case AttentionBug::MergedByView:
      return decoder.heads > 1;
    default:
      return true;
  }
}

/// Gives the models what the bug is about where that changes nothing else that is compared: a window, groups of heads.
void prepare(DecoderOptions& decoder, AttentionBug bug) {
  if (bug == AttentionBug::WindowOffByOne && !decoder.window) {
    decoder.window = std::max<Index>(2, decoder.context / 4);
  }
  const bool tied = std::ranges::any_of(decoder.changes, [](const AttentionChange& change) {
    return change.tying == Tying::QueryIsKey;
  });
  if (bug == AttentionBug::KvHeadsTiled && !decoder.kv_heads && !tied && decoder.heads >= 4 &&
      decoder.heads % 2 == 0) {
    decoder.kv_heads = decoder.heads / 2;
  }
}

/// The setup with options.inject in every block that has no bug, where its models can carry it.
TrainingSetup injected(TrainingSetup setup, const ExperimentOptions& options) {
  if (!options.inject) return setup;
  const AttentionBug bug = bug_named(*options.inject);
  TrainingSetup prepared = setup;
  prepare(prepared.decoder, bug);
  if (!can_carry(prepared, bug)) return setup;
  if (prepared.decoder.changes.empty()) prepared.decoder.changes.emplace_back();
  for (AttentionChange& change : prepared.decoder.changes) {
    if (!change.bug) change.bug = bug;
  }
  return prepared;
}

/// Tells who listens, and marks the name.
Text with_injected(Text name, const TrainedRun& run, const ExperimentOptions& options) {
  if (!options.inject) return name;
  const AttentionBug bug = bug_named(*options.inject);
  const bool carries = run.decoder.change(0).bug == bug;
  if (options.injected) options.injected(name, carries);
  if (!carries) return name;
  const std::string added = fmt::format(" + {}", class_of(bug));
  return {name.english + added, name.chinese + added};
}

bool same_but_for_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  });
}

Measured of_runs(const std::vector<TrainedRun>& runs, double Evaluation::*number) {
  std::vector<double> values;
  values.reserve(runs.size());
  for (const TrainedRun& run : runs) values.push_back(run.last().*number);
  return over_seeds(values);
}

}  // namespace

TrainingSetup setup_for(const Task& task) {
  TrainingSetup setup;
  setup.task = task;
  setup.decoder.vocabulary = task.vocabulary;
  setup.decoder.context = task.tokens;
  return setup;
}

Task plain_recall() {
  return recall_task({.keys = 16, .values = 16, .pairs = 8, .queries = 4, .joined = true});
}

Task misleading_recall() {
  return recall_task({.keys = 16,
                      .values = 16,
                      .pairs = 6,
                      .queries = 2,
                      .joined = true,
                      .padding = RecallPadding{.side = PaddingSide::Left, .misleading = true}});
}

TrainingSetup recall_setup(const Task& task, Index steps) {
  TrainingSetup setup = setup_for(task);
  setup.decoder.layers = 1;
  setup.decoder.mlp_width = 0;
  setup.training.steps = steps;
  setup.training.sequences = 32;
  return setup;
}

AttentionBug bug_named(const std::string& name) {
  std::vector<std::string> known;
  for (const AttentionBug bug : attention_bugs()) {
    if (same_but_for_case(name, name_of(bug)) || same_but_for_case(name, class_of(bug))) return bug;
    known.push_back(fmt::format("{} ({})", name_of(bug), class_of(bug)));
  }
  throw std::invalid_argument(
      fmt::format("lab: --inject: expected one of {}, got \"{}\"", fmt::join(known, ", "), name));
}

TrainedRun train_once(const TrainingSetup& setup, std::uint64_t seed,
                      const ExperimentOptions& options, const Stage& stage) {
  TrainedRun run{Decoder<float>(injected(setup, options).decoder, seed), {}, 0};
  TrainingOptions training = setup.training;
  training.seed = seed;
  if (options.threads > 0) training.threads = options.threads;
  training.progress = [&](const TrainingProgress& progress) {
    const double part = static_cast<double>(progress.step) / static_cast<double>(progress.steps);
    report(options,
           fmt::format("{}: step {}, loss {:.3f}", stage.what, progress.step, progress.loss),
           stage.begin + part * (stage.end - stage.begin));
    return true;
  };
  const double begin = bench::now();
  run.history = train(run.decoder, setup.task, training);
  run.seconds = bench::now() - begin;
  if (run.history.stopped)
    throw std::runtime_error(fmt::format("lab: {}: the loss is no number any more", stage.what));
  return run;
}

double TrainedVariant::first_loss() const { return runs.front().history.loss.front(); }
Measured TrainedVariant::loss() const { return of_runs(runs, &Evaluation::loss); }
Measured TrainedVariant::accuracy() const { return of_runs(runs, &Evaluation::accuracy); }

TrainedVariant train_variant(Text name, const TrainingSetup& setup, int seed_count,
                             const ExperimentOptions& options, const Stage& stage) {
  TrainedVariant variant{std::move(name), {}};
  const double width = (stage.end - stage.begin) / seed_count;
  double begin = stage.begin;
  for (const std::uint64_t seed : seeds(options, seed_count)) {
    variant.runs.push_back(
        train_once(setup, seed, options,
                   {fmt::format("{}, seed {}", stage.what, seed), begin, begin + width}));
    begin += width;
  }
  variant.name = with_injected(variant.name, variant.runs.front(), options);
  return variant;
}

Series loss_series(const TrainedVariant& variant) {
  Series series{variant.name, {}, {}, {}, {}};
  for (std::size_t i = 0; i < variant.runs.front().history.held_out.size(); ++i) {
    std::vector<double> losses;
    for (const TrainedRun& run : variant.runs)
      losses.push_back(run.history.held_out[i].evaluation.loss);
    const Measured loss = over_seeds(losses);
    series.x.push_back(static_cast<double>(variant.runs.front().history.held_out[i].step));
    series.y.push_back(loss.value);
    series.low.push_back(loss.low.value_or(loss.value));
    series.high.push_back(loss.high.value_or(loss.value));
  }
  return series;
}

Chart empty_loss_chart(std::string key, Text title) {
  return {std::move(key),
          std::move(title),
          {{"step", "步数"}, false},
          {{"held-out loss (nats)", "留出集损失（nat）"}, false},
          {}};
}

std::string training_text(const ExperimentOptions& options) {
  return options.text_file ? read_text(*options.text_file) : default_text();
}

Decoder<float> with_changes(const Decoder<float>& decoder, std::vector<AttentionChange> changes) {
  DecoderOptions options = decoder.options();
  options.changes = std::move(changes);
  Decoder<float> result(std::move(options), 0);
  const auto from = decoder.parameters();
  result.update([&](std::span<const NamedParameter<float>> to) {
    for (std::size_t i = 0; i < to.size(); ++i)
      std::ranges::copy(from[i].elements, to[i].elements.begin());
  });
  return result;
}

}  // namespace qkv::lab
