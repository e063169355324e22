#include "cli/align.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "check/align.h"
#include "check/peer_plugin.h"
#include "check/python_peer.h"
#include "cli/align_report.h"
#include "cli/terminal.h"

namespace qkv::cli {
namespace {

struct AlignOptions {
  std::vector<std::string> files;
  std::string case_part;
  std::optional<std::string> python;
  bool require_peers = false;
  bool list = false;
  bool json = false;
};

std::vector<AlignCase> chosen_cases(const AlignOptions& options) {
  std::vector<AlignCase> chosen;
  for (const AlignCase& one : align_cases()) {
    if (one.describe().find(options.case_part) != std::string::npos) chosen.push_back(one);
  }
  if (chosen.empty()) {
    throw std::invalid_argument(
        fmt::format("align: --case: expected part of a line of qkv align --list, got \"{}\"",
                    options.case_part));
  }
  return chosen;
}

ExitCode list_cases(const AlignOptions& options) {
  auto list = nlohmann::json::array();
  for (const AlignCase& one : chosen_cases(options)) {
    if (options.json) {
      list.push_back(align_json(one));
    } else {
      fmt::print("{}\n", one.describe());
    }
  }
  if (options.json) fmt::print("{}\n", list.dump(2));
  return Ok;
}

/// The rows so far, printed case by case unless they are to become JSON.
class Table {
 public:
  explicit Table(bool as_json) : as_json_(as_json) {}

  AlignListener listener() {
    AlignListener listener;
    listener.on_progress = [this](std::string_view doing) { progress_.show(doing); };
    listener.on_versions = [this](const std::vector<std::string>& versions) {
      setting_.versions = versions;
      progress_.clear();
      if (!as_json_) fmt::print("{}", align_header(setting_));
    };
    listener.on_case = [this](const AlignCase& one, const std::vector<AlignRow>& rows) {
      progress_.clear();
      if (!as_json_) fmt::print("{}", align_table(one, rows));
      std::fflush(stdout);
      rows_.insert(rows_.end(), rows.begin(), rows.end());
    };
    return listener;
  }

  void add_missing(const std::string& why) {
    progress_.clear();
    setting_.missing.push_back(why);
  }
  const std::vector<std::string>& missing() const { return setting_.missing; }

  ExitCode finish() const {
    if (rows_.empty()) {
      throw std::runtime_error(fmt::format("align: nothing to compare with: without {}",
                                           fmt::join(setting_.missing, "; without ")));
    }
    if (as_json_) {
      fmt::print("{}\n", align_json(setting_, rows_).dump(2));
    } else {
      fmt::print("\n{}", align_footer(rows_));
    }
    const bool failed = std::any_of(rows_.begin(), rows_.end(), [](const AlignRow& row) {
      return row.verdict == AlignVerdict::Fail;
    });
    return failed ? DifferenceFound : Ok;
  }

 private:
  bool as_json_;
  ProgressLine progress_;
  AlignSetting setting_;
  std::vector<AlignRow> rows_;
};

ExitCode align_with_peers(const AlignOptions& options) {
  const auto cases = chosen_cases(options);
  Table table(options.json);
  const auto without = [&](std::string_view what, bool needed, const PeerMissing& why) {
    const std::string text = fmt::format("{}: {}", what, why.what());
    if (needed) throw PeerMissing("align: " + text);
    table.add_missing(text);
  };

  std::unique_ptr<Peer> cpp;
  try {
    cpp = load_torch_peer();
  } catch (const PeerMissing& why) {
    without("PyTorch's C++ API", options.require_peers, why);
  }
  const std::unique_ptr<Peer> python = make_python_peer(options.python);
  try {
    align(cases, {python.get(), cpp.get()}, table.listener());
  } catch (const PeerMissing& why) {  // known before the first row
    without("PyTorch in Python", options.require_peers || options.python, why);
    if (cpp != nullptr) align(cases, {nullptr, cpp.get()}, table.listener());
  }
  return table.finish();
}

ExitCode align_samples(const AlignOptions& options) {
  std::vector<NamedSampleReport> samples;
  const ProgressLine progress;
  for (const std::string& file : options.files) {
    progress.show(file);
    try {
      samples.push_back({file, align_sample(read_tensors(file))});
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(fmt::format("{}: {}", file, error.what()));
    }
    progress.clear();
    if (!options.json) fmt::print("{}", sample_table(samples.back()));
  }
  fmt::print("{}", options.json ? sample_json(samples).dump(2) + "\n" : sample_footer(samples));
  for (const NamedSampleReport& sample : samples) {
    for (const SampleRow& row : sample.report.rows) {
      if (!row.passed()) return DifferenceFound;
    }
  }
  return Ok;
}

ExitCode run_align(const AlignOptions& options) {
  if (!options.files.empty()) return align_samples(options);
  return options.list ? list_cases(options) : align_with_peers(options);
}

}  // namespace

Command add_align_command(CLI::App& app) {
  const auto options = std::make_shared<AlignOptions>();
  CLI::App* command = app.add_subcommand(
      "align", "Hold MultiHeadAttention against PyTorch's, or against what a model recorded");
  command->footer(
      "Without a file: a table of cases, each against PyTorch's Python and C++ API in float64 and\n"
      "float32, forward and backward. With files: recorded layers, as in data/.\n"
      "Exit code 1 where a row fails, 2 where there is nothing to compare with.");
  CLI::Option* files = command->add_option(
      "file", options->files, "Recorded layers (.safetensors, .npz) to hold the module against");
  command->add_option("--case", options->case_part, "Only cases whose line in --list holds this")
      ->excludes(files);
  command
      ->add_option("--python", options->python,
                   "A Python with PyTorch; else $QKV_PYTHON, .venv of the checkout, python3")
      ->excludes(files);
  command
      ->add_flag("--require-peers", options->require_peers,
                 "Fail with exit code 2 where PyTorch's Python or C++ API is missing")
      ->excludes(files);
  command->add_flag("--list", options->list, "List the cases")->excludes(files);
  command->add_flag("--json", options->json, "Print JSON");
  return {command, [options] { return run_align(*options); }};
}

}  // namespace qkv::cli
