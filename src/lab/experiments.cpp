#include "lab/experiments.h"

#include <algorithm>
#include <array>

#include "lab/experiment_injected.h"
#include "lab/experiment_runs.h"

namespace qkv::lab {
namespace {

constexpr auto kExperiments = std::to_array<ExperimentEntry>({
    {.name = "projections",
     .section = 1,
     .summary = "what separate query, key and value projections buy",
     .trains = true,
     .run = run_projections},
    {.name = "scale",
     .section = 2,
     .summary = "scores with and without 1/√Dk: variance, softmax, gradient, training",
     .trains = true,
     .run = run_scale},
    {.name = "mask",
     .section = 4,
     .summary = "−∞ against large negative numbers, before and after the softmax",
     .run = run_mask},
    {.name = "complexity",
     .section = 7,
     .summary = "FLOPs, bytes, times and memory, part by part",
     .run = run_complexity},
    {.name = "explain",
     .section = 8,
     .summary = "attributions where the answer is known, and the interventions that test them",
     .run = run_explain},
    {.name = "causal",
     .section = 9,
     .summary = "the causal mask right, off by one and off: loss, text, influence of the future",
     .trains = true,
     .reads_text = true,
     .run = run_causal},
    {.name = "heads",
     .section = 9,
     .summary = "the same width in 1, 2, 4, 8 and more heads",
     .trains = true,
     .reads_text = true,
     .run = run_heads},
    {.name = "padding",
     .section = 9,
     .summary = "the padding mask on the wrong axis",
     .trains = true,
     .run = run_padding},
    {.name = "bugs",
     .section = 9,
     .summary = "thirteen bugs, and the tests that catch them",
     .run = run_bugs},
    {.name = "implementations",
     .section = 9,
     .summary = "oracle, engine and PyTorch held against each other",
     .run = run_implementations},
    {.name = "exercises",
     .section = 10,
     .summary = "the lesson's questions, answered by running them",
     .trains = true,
     .run = run_exercises},
});

}  // namespace

std::span<const ExperimentEntry> experiments() { return kExperiments; }

const ExperimentEntry* find_experiment(std::string_view name) {
  const auto found = std::find_if(kExperiments.begin(), kExperiments.end(),
                                  [&](const ExperimentEntry& entry) { return entry.name == name; });
  return found == kExperiments.end() ? nullptr : &*found;
}

Experiment run_experiment(const ExperimentEntry& entry, const ExperimentOptions& options) {
  if (!entry.trains || !options.inject) return entry.run(options);
  InjectedInto into;
  ExperimentOptions told = options;
  told.injected = [&](const Text& variant, bool carries) {
    (carries ? into.carriers : into.others).push_back(variant);
  };
  Experiment experiment = entry.run(told);
  add_injected_bug(options, into, experiment);
  return experiment;
}

}  // namespace qkv::lab
