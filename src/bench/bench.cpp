#include "bench/bench.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "bench/clock.h"
#include "bench/peak_memory.h"
#include "bench/statistics.h"
#include "engine/setting.h"

namespace qkv::bench {
namespace {

constexpr int kMostThreads = 1024;
constexpr int kProbes = 20;
constexpr double kSampleSeconds =
    0.002;  // shorter calls are repeated, for the clock and the threads to settle
constexpr int kMostRepeats = 20'000;
// Short calls go in more rounds than asked for: on a machine with other work the best is found among many.
constexpr double kCaseSeconds = 1;
constexpr int kMostTimesRounds = 20;
constexpr double kOracleSeconds = 0.5;  // of a case, for all runs after the first
constexpr std::chrono::milliseconds kRest{10};

using Work = std::function<void()>;

double seconds_of(const Work& work) {
  const double begin = now();
  work();
  return now() - begin;
}

/// One contestant's calls in a round: as many as fill a sample, and the mean of them.
class Repeated {
 public:
  explicit Repeated(Work work) : work_(std::move(work)) {
    const double begin = now();
    double shortest = seconds_of(work_);
    for (int i = 1; i < 20 && now() - begin < kSampleSeconds; ++i) {
      shortest = std::min(shortest, seconds_of(work_));
    }
    const double wanted = std::ceil(kSampleSeconds / std::max(shortest, 1e-9));
    repeats_ = static_cast<int>(std::clamp(wanted, 1.0, static_cast<double>(kMostRepeats)));
  }

  double sample() const {
    const double seconds = seconds_of([&] {
      for (int i = 0; i < repeats_; ++i) work_();
    });
    return seconds / repeats_;
  }

 private:
  Work work_;
  int repeats_ = 1;
};

/// One call, by the clock of whoever makes it. Threads that wait for work spin for some milliseconds: those of one process
/// come to rest before the other one runs.
double one_call(TimedCall& call) {
  if (!call.measured_elsewhere()) return seconds_of([&] { call.run(); });
  std::this_thread::sleep_for(kRest);
  call.run();
  std::this_thread::sleep_for(kRest);
  return call.measured_elsewhere()->seconds;
}

std::optional<std::size_t> extra_memory_of(TimedCall& call) {
  if (const auto measured = call.measured_elsewhere()) return measured->extra_memory;
  return peak_extra_memory([&] { call.run(); });
}

using Samples = std::vector<double>;

void put(const Samples& samples, Measured& measured) {
  measured.best = *std::min_element(samples.begin(), samples.end());
  measured.median = median(samples);
}

void put(const Samples& samples, const Samples& ours, MeasuredPeer& peer) {
  put(samples, peer);
  Samples ratios;
  for (std::size_t i = 0; i < ours.size(); ++i) ratios.push_back(samples[i] / ours[i]);
  peer.ratio = median(std::move(ratios));
}

}  // namespace

Bench::Bench(BenchOptions options, BenchPeers peers, Progress progress)
    : options_(std::move(options)), peers_(peers), progress_(std::move(progress)) {
  const auto expect_range = [](std::string_view name, int value, int most) {
    if (value >= 1 && value <= most) return;
    throw std::invalid_argument(
        fmt::format("bench: {}: expected 1 to {}, got {}", name, most, value));
  };
  expect_range("threads", options_.threads, kMostThreads);
  expect_range("rounds", options_.rounds, std::numeric_limits<int>::max());
  engine::Options engine_options;
  engine_options.threads = options_.threads;
  engine_options.target = options_.target;
  target_ = engine::setting_of("bench", engine_options).target->name;
}

void Bench::probe(LimitKind kind, int threads) {
  double& best = limits_[{kind, threads}];
  best = std::max(best, probe_.measure(kind, threads));
}

void Bench::measure_limits() {
  for (const LimitKind kind :
       {LimitKind::MultiplyAddFloat32, LimitKind::MultiplyAddFloat64, LimitKind::Read}) {
    for (const int threads : {1, options_.threads}) {
      progress_(fmt::format("limit: {}, {} threads", name_of(kind), threads));
      for (int i = 0; i < (kind == LimitKind::Read ? kProbes / 4 : kProbes); ++i)
        probe(kind, threads);
    }
  }
}

std::vector<Bench::Limit> Bench::limits() const {
  std::vector<Limit> all;
  for (const auto& [key, best] : limits_) all.push_back({key.first, key.second, best});
  return all;
}

std::unique_ptr<TimedCall> Bench::fastest_form(const BenchCase& bench_case, const Subject& subject,
                                               int threads, TimedPeer& from,
                                               MeasuredPeer& peer) const {
  std::unique_ptr<TimedCall> fastest;
  double shortest = std::numeric_limits<double>::infinity();
  for (std::unique_ptr<TimedCall>& form : from.prepare(subject.peer_call(), threads)) {
    progress_(fmt::format("{}: {}", bench_case.describe(), form->form()));
    form->run();
    const OracleCheck check = subject.check(form->results());
    if (!check.passed()) {
      peer.check = check;
      peer.form = form->form();
      return nullptr;
    }
    double seconds = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 3; ++i) seconds = std::min(seconds, one_call(*form));
    if (seconds >= shortest) continue;
    shortest = seconds;
    peer.check = check;
    peer.form = form->form();
    fastest = std::move(form);
  }
  peer.extra_memory = extra_memory_of(*fastest);
  return fastest;
}

/// FlexAttention needs a Python, PyTorch and a compiler: where something fails, the row says what.
std::unique_ptr<TimedCall> Bench::flex_form(const Subject& subject, BenchRow& row) const {
  if (peers_.flex == nullptr || !row.bench_case.for_flex_attention()) return nullptr;
  progress_(fmt::format("{}: FlexAttention", row.bench_case.describe()));
  try {
    return fastest_form(row.bench_case, subject, row.threads, *peers_.flex, row.flex.emplace());
  } catch (const std::runtime_error& error) {
    row.flex.reset();
    row.flex_missing = error.what();
    return nullptr;
  }
}

void Bench::measure_oracle(Subject& subject, MeasuredOracle& oracle) const {
  const double seconds = seconds_of([&] { subject.run_oracle(); });
  oracle.best = oracle.runs == 0 ? seconds : std::min(oracle.best, seconds);
  ++oracle.runs;
}

void Bench::run_rounds(BenchRow& row, Subject& subject, const Work& ours, TimedCall* peer,
                       TimedCall* flex) {
  const LimitKind kind = row.limit_kind();
  probe(kind, row.threads);
  Samples our_samples;
  Samples peer_samples;
  Samples flex_samples;
  double oracle_left = kOracleSeconds;
  std::vector<Work> steps;
  steps.emplace_back([&, calls = Repeated(ours)] { our_samples.push_back(calls.sample()); });
  steps.emplace_back([&] { probe(kind, row.threads); });
  steps.emplace_back([&] {
    if (row.oracle.best > oracle_left) return;
    oracle_left -= seconds_of([&] { measure_oracle(subject, row.oracle); });
  });
  if (peer != nullptr) {
    steps.emplace_back(
        [&, calls = Repeated([peer] { peer->run(); })] { peer_samples.push_back(calls.sample()); });
  }
  steps.emplace_back([&] {
    if (flex == nullptr) return;
    try {
      flex_samples.push_back(one_call(*flex));
    } catch (const std::runtime_error& error) {  // the process has ended
      flex = nullptr;
      row.flex.reset();
      row.flex_missing = error.what();
    }
  });

  const double begin = now();
  for (; row.rounds < options_.rounds ||
         (row.rounds < kMostTimesRounds * options_.rounds && now() - begin < kCaseSeconds);
       ++row.rounds) {
    if (row.rounds < options_.rounds) {
      progress_(fmt::format("{}: round {} of {}", row.bench_case.describe(), row.rounds + 1,
                            options_.rounds));
    }
    for (const Work& step : steps) step();
    std::reverse(steps.begin(), steps.end());
  }
  put(our_samples, row.ours);
  if (peer != nullptr) put(peer_samples, our_samples, *row.peer);
  if (flex != nullptr) put(flex_samples, our_samples, *row.flex);
}

BenchRow Bench::measure(const BenchCase& bench_case) {
  BenchRow row;
  row.bench_case = bench_case;
  row.threads = bench_case.threads.value_or(options_.threads);
  progress_(fmt::format("{}: the oracle", bench_case.describe()));
  omp_set_num_threads(row.threads);
  const std::unique_ptr<Subject> subject = make_subject(bench_case);
  row.oracle.flops = subject->oracle_flops();
  measure_oracle(*subject, row.oracle);
  const Subject::Call call = subject->ours();
  engine::Options options;
  options.threads = row.threads;
  options.target = options_.target;
  engine::Workspace workspace;
  options.workspace = &workspace;
  const Work ours = [&] { call(options); };
  {
    engine::Workspace first;
    options.workspace = &first;
    ours();
    row.ours.check = subject->check(subject->results());
    first = engine::Workspace();
    row.ours.extra_memory = peak_extra_memory(ours);
    options.workspace = &workspace;
  }
  std::unique_ptr<TimedCall> peer;
  if (peers_.torch != nullptr) {
    peer = fastest_form(bench_case, *subject, row.threads, *peers_.torch, row.peer.emplace());
  }
  const std::unique_ptr<TimedCall> flex = flex_form(*subject, row);
  if (row.passed()) run_rounds(row, *subject, ours, peer.get(), flex.get());
  return row;
}

}  // namespace qkv::bench
