#include "cli/check.h"

#include <omp.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "check/bug_text.h"
#include "cli/check_report.h"
#include "cli/terminal.h"
#include "qkv/io.h"

namespace qkv::cli {
namespace {

/// The command line, as it is typed.
struct CheckOptions {
  std::vector<std::string> files;
  bool list = false;
  std::string about;
  std::string language = "en";
  bool no_diagnosis = false;
  std::optional<int> threads;
  bool json = false;
  std::string color = "auto";
};

[[noreturn]] void fail(std::string_view option, std::string_view expected, std::string_view got) {
  throw std::invalid_argument(fmt::format("check: {}: expected {}, got {}", option, expected, got));
}

BugLanguage language_of(const CheckOptions& options) {
  return options.language == "zh" ? BugLanguage::Chinese : BugLanguage::English;
}

ExitCode list(const CheckOptions& options) {
  const lab::TextStyle style{wants_color(options.color), text_width()};
  fmt::print("{}", options.json ? bug_list_json().dump(2) + "\n" : bug_list_text(style));
  return Ok;
}

ExitCode about(const CheckOptions& options) {
  const BugText* bug = find_bug_text(options.about, language_of(options));
  if (bug == nullptr) fail("--about", "a class of qkv check --list", options.about);
  fmt::print("{} · {}\n\n{}\n", bug->id, bug->title, bug->text);
  return Ok;
}

Diagnosis diagnosis_of(const Dump& dump, bool matches, const CheckOptions& options,
                       const ProgressLine& progress) {
  DiagnoseOptions diagnose_options;
  diagnose_options.threads = options.threads.value_or(0);
  diagnose_options.progress = [&](std::string_view doing, double part) {
    constexpr int kCells = 24;
    const auto full = static_cast<std::size_t>(std::clamp(part, 0.0, 1.0) * kCells);
    progress.show(fmt::format("[{:<{}}] {}", std::string(full, '#'), kCells, doing));
  };
  return matches ? challenge(dump, diagnose_options) : diagnose(dump, diagnose_options);
}

/// Prints what is known of one file. Throws std::invalid_argument or FileError where it is no dump.
ExitCode check_file(const std::string& file, const CheckOptions& options) {
  const ProgressLine progress;
  progress.show(fmt::format("{}: reading", file));
  const TensorFile tensors = read_tensors(file);
  const Dump dump = read_dump(tensors);
  CheckedDump checked;
  checked.file = file;
  checked.dump = &dump;
  if (const auto source = tensors.metadata.find("source"); source != tensors.metadata.end()) {
    checked.source = source->second;
  }
  progress.show(fmt::format("{}: computing what it was meant to hold", file));
  checked.verdict = judge(dump, tensors.at("out").dtype());
  if (!options.no_diagnosis) {
    checked.diagnosis = diagnosis_of(dump, checked.verdict.matches, options, progress);
  }
  progress.clear();
  if (options.json) {
    fmt::print("{}\n", check_json(checked).dump(options.files.size() == 1 ? 2 : -1));
  } else {
    const lab::TextStyle style{wants_color(options.color), text_width()};
    fmt::print("{}", check_text(checked, style));
  }
  return checked.matches() ? Ok : DifferenceFound;
}

/// With several files, one that cannot be understood does not keep the others from being checked.
ExitCode check_or_report(const std::string& file, const CheckOptions& options) {
  const auto report = [&](std::string_view message) {
    std::fflush(stdout);
    if (options.json) {
      fmt::print(
          "{}\n",
          nlohmann::json{{"file", file}, {"verdict", "bad input"}, {"error", message}}.dump());
    } else {
      fmt::print(stderr, "qkv: {}\n", message);
    }
    return BadInput;
  };
  try {
    return check_file(file, options);
  } catch (const FileError& error) {
    return report(error.what());
  } catch (const std::invalid_argument& error) {
    return report(fmt::format("{}: {}", file, error.what()));
  }
}

ExitCode run(const CheckOptions& options) {
  if (options.list) return list(options);
  if (!options.about.empty()) return about(options);
  if (options.files.empty()) {
    fail("input", "a dump (.safetensors or .npz, see docs/dump.md), --list or --about ID",
         "nothing");
  }
  if (options.threads) omp_set_num_threads(*options.threads);
  if (options.files.size() == 1) {
    try {
      return check_file(options.files.front(), options);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(fmt::format("{}: {}", options.files.front(), error.what()));
    }
  }
  ExitCode worst = Ok;
  for (const std::string& file : options.files) {
    if (!options.json && file != options.files.front()) fmt::print("\n");
    worst = std::max(worst, check_or_report(file, options));
  }
  return worst;
}

}  // namespace

Command add_check_command(CLI::App& app) {
  const auto options = std::make_shared<CheckOptions>();
  CLI::App* command = app.add_subcommand(
      "check", "Hold what any attention wrote against the oracle, and name its bug");
  command->footer(
      "A dump is one .safetensors or .npz file with what an attention read (q, k, v, or x and "
      "weights),\n"
      "what it was meant to do (causal, padding, scale, ...) and what it wrote (out). docs/dump.md "
      "has the\n"
      "names, and a few lines that write one in PyTorch, JAX, NumPy, C and C++:\n\n"
      "  save_file({\"q\": q, \"k\": k, \"v\": v, \"out\": out}, \"dump.safetensors\", "
      "{\"causal\": \"true\"})\n"
      "  qkv check dump.safetensors\n\n"
      "Exit code: 0 where every dump matches, 1 where one differs, 2 on bad input (the largest of\n"
      "several files).");
  CLI::Option* files = command->add_option("file", options->files, "Dumps (.safetensors, .npz)");
  command->add_flag("--no-diagnosis", options->no_diagnosis,
                    "The verdict alone, without a search for the cause");
  command->add_option("--threads", options->threads, "Threads to use at most")
      ->check(CLI::Range(1, 65536));
  command->add_flag("--json", options->json,
                    "Print JSON: one object, or a line each where there are several files");
  command->add_option("--color", options->color, "always, never or auto (NO_COLOR is respected)")
      ->check(CLI::IsMember({"always", "never", "auto"}))
      ->capture_default_str();
  const char* catalogue = "The catalogue of bugs";
  CLI::Option* list = command->add_flag("--list", options->list, "List the classes")
                          ->excludes(files)
                          ->group(catalogue);
  CLI::Option* about = command->add_option("--about", options->about, "Explain a class: M2")
                           ->excludes(files)
                           ->excludes(list)
                           ->group(catalogue);
  command->add_option("--lang", options->language, "Language of --about: en or zh")
      ->check(CLI::IsMember({"en", "zh"}))
      ->needs(about)
      ->capture_default_str()
      ->group(catalogue);
  return {command, [options] { return run(*options); }};
}

}  // namespace qkv::cli
