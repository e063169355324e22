#include "cli/lab.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "cli/page_folder.h"
#include "cli/stop_signal.h"
#include "cli/terminal.h"
#include "cli/whole_number.h"
#include "io/file_map.h"
#include "lab/experiment_json.h"
#include "lab/experiment_text.h"
#include "lab/experiment_training.h"
#include "lab/experiments.h"
#include "model/attention_change.h"
#include "qkv/error.h"

namespace qkv::cli {
namespace {

using lab::ExperimentEntry;

/// The command line, as it is typed.
struct LabOptions {
  std::vector<std::string> names;
  lab::ExperimentOptions experiment;
  std::optional<std::string> out;
  std::string color = "auto";
  bool json = false;
};

[[noreturn]] void fail(std::string_view option, std::string_view expected, std::string_view got) {
  throw std::invalid_argument(fmt::format("lab: {}: expected {}, got {}", option, expected, got));
}

template <class Accept>
std::string names_of(Accept accept) {
  std::string names;
  for (const ExperimentEntry& entry : lab::experiments()) {
    if (accept(entry)) names += fmt::format("{}{}", names.empty() ? "" : ", ", entry.name);
  }
  return names;
}

/// In the order they were asked for, each once.
std::vector<const ExperimentEntry*> chosen_experiments(const std::vector<std::string>& names) {
  std::vector<const ExperimentEntry*> chosen;
  const auto choose = [&](const ExperimentEntry& entry) {
    if (std::find(chosen.begin(), chosen.end(), &entry) == chosen.end()) chosen.push_back(&entry);
  };
  for (const std::string& name : names) {
    if (name == "all") {
      for (const ExperimentEntry& entry : lab::experiments()) choose(entry);
    } else if (const ExperimentEntry* entry = lab::find_experiment(name)) {
      choose(*entry);
    } else {
      const auto every = [](const ExperimentEntry&) { return true; };
      fail("NAME", fmt::format("all or one of {}", names_of(every)), name);
    }
  }
  return chosen;
}

void check_text(const std::string& path) {
  const FileBytes text = map_file(path);
  if (text.bytes.empty()) {
    throw FileError(path, "expected a text to train on, got an empty file");
  }
  if (std::all_of(text.bytes.begin(), text.bytes.end(),
                  [&](std::byte byte) { return byte == text.bytes.front(); })) {
    throw FileError(path, "expected a text to train on, got one byte again and again");
  }
}

/// "causal-dropped (M7), …"
std::string names_of_bugs() {
  std::string names;
  for (const AttentionBug bug : attention_bugs())
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", name_of(bug), class_of(bug));
  return names;
}

/// What would else be found out minutes later.
void check_training_options(const lab::ExperimentOptions& options,
                            const std::vector<const ExperimentEntry*>& chosen) {
  const auto demand = [&](const char* option, std::string_view what, bool ExperimentEntry::*does) {
    const auto any = [&](const ExperimentEntry* entry) { return entry->*does; };
    if (std::any_of(chosen.begin(), chosen.end(), any)) return;
    const auto those = [&](const ExperimentEntry& entry) { return entry.*does; };
    fail(option, fmt::format("an experiment that {} ({})", what, names_of(those)),
         chosen.front()->name);
  };
  if (options.text_file) {
    check_text(*options.text_file);
    demand("--text", "trains on a text", &ExperimentEntry::reads_text);
  }
  if (options.inject) {
    static_cast<void>(lab::bug_named(*options.inject));
    demand("--inject", "trains", &ExperimentEntry::trains);
  }
}

/// "lab 2/9 mask [#####...............]  25 %  float16"
std::string progress_text(std::string_view name, std::size_t number, std::size_t count,
                          std::string_view what, double done) {
  constexpr int kCells = 20;
  const double part = std::clamp(done, 0.0, 1.0);
  const auto filled = static_cast<std::size_t>(part * kCells);
  return fmt::format("lab {}/{} {} [{:.<20}] {:3.0f} %  {}", number, count, name,
                     std::string(filled, '#'), 100 * part, what);
}

class LabRun {
 public:
  explicit LabRun(const LabOptions& options) : options_(options) {}

  ExitCode run() {
    const std::vector<const ExperimentEntry*> chosen = chosen_experiments(options_.names);
    check_training_options(options_.experiment, chosen);
    if (options_.out) folder_.emplace("lab", *options_.out);
    try {
      run_experiments(chosen);
    } catch (const lab::Interrupted&) {
      progress_.clear();
      fmt::print(stderr, "qkv: lab: interrupted in {}{}\n", chosen[done_.size()]->name,
                 options_.out ? "; nothing was written to " + *options_.out : "");
      return Stopped;
    }
    finish();
    return all_hold() ? Ok : DifferenceFound;
  }

 private:
  void run_experiments(const std::vector<const ExperimentEntry*>& chosen) {
    const lab::TextStyle style{wants_color(options_.color), text_width()};
    for (const ExperimentEntry* entry : chosen) {
      lab::ExperimentOptions options = options_.experiment;
      options.progress = [&](std::string_view what, double done) {
        progress_.show(progress_text(entry->name, done_.size() + 1, chosen.size(), what, done));
        return !stop_.came();
      };
      done_.push_back(lab::run_experiment(*entry, options));
      progress_.clear();
      if (options_.json) continue;
      fmt::print("{}", lab::experiment_text(done_.back(), style));
      std::fflush(stdout);
    }
  }

  void finish() const {
    if (!options_.json && !options_.out) return;
    const std::string results = lab::experiments_json(done_, options_.experiment);
    if (folder_) folder_->write(results);
    if (options_.json) {
      fmt::print("{}", results);
    } else {
      fmt::print("  page  {}\n  JSON  {}\n", folder_->page(), folder_->results());
    }
  }

  bool all_hold() const {
    return std::all_of(done_.begin(), done_.end(), [](const lab::Experiment& experiment) {
      return std::all_of(experiment.effects.begin(), experiment.effects.end(),
                         [](const lab::Effect& effect) { return effect.holds; });
    });
  }

  const LabOptions& options_;
  std::optional<PageFolder> folder_;
  StopSignal stop_;
  ProgressLine progress_;
  std::vector<lab::Experiment> done_;
};

std::string help_on_experiments() {
  std::string text = "Experiments:\n";
  for (const ExperimentEntry& entry : lab::experiments()) {
    text += fmt::format("  {:<16}§{}  {}\n", entry.name, entry.section, entry.summary);
  }
  return text +
         "\nExit code: 0, or 1 where an effect that the lesson names was not there, 2 on bad "
         "input, "
         "130 where it was interrupted.";
}

}  // namespace

Command add_lab_command(CLI::App& app) {
  const auto options = std::make_shared<LabOptions>();
  CLI::App* command =
      app.add_subcommand("lab", "Run the lesson's experiments, and write a page to look at them");
  command->footer(help_on_experiments());
  command->add_option("names", options->names, "Names of experiments, or all")->required();
  command->add_flag("--quick", options->experiment.quick,
                    "Smaller and shorter: all of them in under 3 minutes");
  command->add_option("--seed", options->experiment.seed, "Seed of everything that is drawn")
      ->check(whole_number(0))
      ->capture_default_str();
  command->add_option("--text", options->experiment.text_file,
                      "A text to train on, in place of the one that comes with the program");
  command->add_option(
      "--inject", options->experiment.inject,
      "A bug that the models are trained with, by its name or its class: " + names_of_bugs());
  command->add_option("--out", options->out,
                      "A folder for the page (index.html) and its numbers (results.json)");
  command->add_flag("--json", options->json, "Everything as JSON instead");
  command->add_option("--color", options->color, "always, never or auto (NO_COLOR is respected)")
      ->check(CLI::IsMember({"always", "never", "auto"}))
      ->capture_default_str();
  return {command, [options] { return LabRun(*options).run(); }};
}

}  // namespace qkv::cli
