#include "cli/bench.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/bench.h"
#include "check/flex_attention.h"
#include "check/peer_plugin.h"
#include "cli/bench_picture.h"
#include "cli/bench_report.h"
#include "cli/terminal.h"
#include "cli/whole_number.h"
#include "io/output_file.h"

namespace qkv::cli {
namespace {

constexpr int kRounds = 15;
constexpr int kQuickRounds = 5;

struct BenchCommandOptions {
  std::string case_part;
  bool quick = false;
  bool list = false;
  bool json = false;
  bool without_peer = false;
  bool peer_as_shipped = false;
  std::string png;
  std::optional<Index> threads;
  std::optional<Index> rounds;
  std::optional<std::string> target;
};

std::vector<bench::BenchCase> chosen_cases(const BenchCommandOptions& options) {
  std::vector<bench::BenchCase> chosen;
  for (const bench::BenchCase& one : bench::bench_cases()) {
    if (options.quick && !one.quick) continue;
    if (one.describe().find(options.case_part) != std::string::npos) chosen.push_back(one);
  }
  if (chosen.empty()) {
    throw std::invalid_argument(
        fmt::format("bench: --case: expected part of a line of qkv bench{} --list, got \"{}\"",
                    options.quick ? " --quick" : "", options.case_part));
  }
  return chosen;
}

ExitCode list_cases(const BenchCommandOptions& options) {
  auto list = nlohmann::json::array();
  for (const bench::BenchCase& one : chosen_cases(options)) {
    if (options.json) {
      list.push_back(bench_json(one));
    } else {
      fmt::print("{}\n", one.describe());
    }
  }
  if (options.json) fmt::print("{}\n", list.dump(2));
  return Ok;
}

int as_count(std::string_view option, std::optional<Index> value, int otherwise, Index most) {
  if (!value) return otherwise;
  if (*value < 1 || *value > most) {
    throw std::invalid_argument(
        fmt::format("bench: {}: expected 1 to {}, got {}", option, most, *value));
  }
  return static_cast<int>(*value);
}

bench::BenchOptions bench_options(const BenchCommandOptions& options) {
  bench::BenchOptions result;
  result.threads = as_count("--threads", options.threads, omp_get_max_threads(), 1024);
  result.rounds =
      as_count("--rounds", options.rounds, options.quick ? kQuickRounds : kRounds, 1'000'000);
  result.target = options.target;
  return result;
}

ExitCode run_cases(const BenchCommandOptions& options) {
  const auto cases = chosen_cases(options);
  const bench::BenchOptions settings = bench_options(options);
  std::optional<OutputFile> picture;
  if (!options.png.empty()) picture.emplace(options.png);  // an error now, not after minutes
  BenchReport report;
  if (double load = 0; ::getloadavg(&load, 1) == 1) report.load = load;
  std::unique_ptr<TimedPeer> peer;
  std::unique_ptr<TimedPeer> flex;
  const PeerTuning tuning = options.peer_as_shipped ? PeerTuning::AsShipped : PeerTuning::Best;
  if (options.without_peer) {
    report.missing = "not asked for (--without-peer)";
  } else {
    flex = make_flex_attention_peer({.tuning = tuning});
    try {
      peer = load_timed_torch_peer(tuning);
      report.peer = peer->describe();
    } catch (const PeerMissing& why) {
      report.missing = why.what();
    }
  }

  const ProgressLine progress;
  bench::Bench bench(settings, {.torch = peer.get(), .flex = flex.get()},
                     [&](std::string_view doing) { progress.show(doing); });
  bench.measure_limits();
  for (const bench::BenchCase& one : cases) report.rows.push_back(bench.measure(one));
  bench.measure_limits();
  progress.clear();

  report.threads = settings.threads;
  report.rounds = settings.rounds;
  report.target = bench.target();
  report.limit_target = bench::LimitProbe::target();
  report.read_bytes = bench::LimitProbe::read_bytes();
  report.limits = bench.limits();
  if (flex) report.flex = flex->describe();
  if (options.json) {
    fmt::print("{}\n", bench_json(report).dump(2));
  } else {
    fmt::print("{}", bench_text(report));
  }
  if (picture) {
    picture->write(bench_png(report));
    picture->commit();
  }
  const bool passed = std::all_of(report.rows.begin(), report.rows.end(),
                                  [](const bench::BenchRow& row) { return row.passed(); });
  return passed ? Ok : DifferenceFound;
}

}  // namespace

Command add_bench_command(CLI::App& app) {
  const auto options = std::make_shared<BenchCommandOptions>();
  CLI::App* command = app.add_subcommand(
      "bench", "Measure the engine beside PyTorch and the limits of this machine");
  command->footer(
      "Every result is held against the oracle before it is measured. Exit code 1 where one is "
      "wrong.\n"
      "All cases take some minutes; docs/performance.md explains the figures.");
  command->add_option("--case", options->case_part, "Only cases whose line in --list holds this");
  command->add_flag("--quick", options->quick, "A small subset in some seconds, in 5 rounds");
  command->add_flag("--list", options->list, "List the cases");
  command
      ->add_option("--threads", options->threads, "Threads; what OpenMP would use where not given")
      ->check(whole_number(1));
  command
      ->add_option("--rounds", options->rounds,
                   "Rounds a case (short calls go in more); 15 where not given")
      ->check(whole_number(1));
  command->add_option("--target", options->target,
                      "SIMD target of the engine; the fastest where not given");
  command->add_flag("--without-peer", options->without_peer, "Leave out PyTorch");
  command->add_flag("--peer-as-shipped", options->peer_as_shipped,
                    "Tune nothing for PyTorch: neither its allocator nor its BLAS");
  command->add_flag("--json", options->json, "Print JSON");
  command->add_option("--png", options->png, "Draw the parts of the limit to this file");
  return {command,
          [options] { return options->list ? list_cases(*options) : run_cases(*options); }};
}

}  // namespace qkv::cli
