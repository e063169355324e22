#include "bench/bench.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

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

using Work = std::function<void()>;

double seconds_of(const Work& work) {
  const double begin = now();
  work();
  return now() - begin;
}

/// One contestant's calls in a round.
class Sampler {
 public:
  explicit Sampler(const Work& work) : work_(work) {
    const double begin = now();
    double shortest = seconds_of(work);
    for (int i = 1; i < 20 && now() - begin < kSampleSeconds; ++i) {
      shortest = std::min(shortest, seconds_of(work));
    }
    const double wanted = std::ceil(kSampleSeconds / std::max(shortest, 1e-9));
    repeats_ = static_cast<int>(std::clamp(wanted, 1.0, static_cast<double>(kMostRepeats)));
  }

  void sample() {
    const double seconds = seconds_of([&] {
      for (int i = 0; i < repeats_; ++i) work_();
    });
    samples_.push_back(seconds / repeats_);
  }

  const std::vector<double>& samples() const noexcept { return samples_; }
  void put_into(Measured& measured) const {
    measured.best = *std::min_element(samples_.begin(), samples_.end());
    measured.median = median(samples_);
  }

 private:
  const Work& work_;
  int repeats_ = 1;
  std::vector<double> samples_;
};

}  // namespace

Bench::Bench(BenchOptions options, TimedPeer* peer, Progress progress)
    : options_(std::move(options)), peer_(peer), progress_(std::move(progress)) {
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
                                               int threads, MeasuredPeer& peer) const {
  std::unique_ptr<TimedCall> fastest;
  double shortest = std::numeric_limits<double>::infinity();
  for (std::unique_ptr<TimedCall>& form : peer_->prepare(subject.peer_call(), threads)) {
    progress_(fmt::format("{}: {}", bench_case.describe(), form->form()));
    form->run();
    const OracleCheck check = subject.check(form->results());
    if (!check.passed()) {
      peer.check = check;
      peer.form = form->form();
      return nullptr;
    }
    double seconds = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 3; ++i) seconds = std::min(seconds, seconds_of([&] { form->run(); }));
    if (seconds >= shortest) continue;
    shortest = seconds;
    peer.check = check;
    peer.form = form->form();
    fastest = std::move(form);
  }
  peer.extra_memory = peak_extra_memory([&] { fastest->run(); });
  return fastest;
}

void Bench::run_rounds(BenchRow& row, const Work& ours, TimedCall* peer) {
  const LimitKind kind = row.limit_kind();
  probe(kind, row.threads);
  Sampler our_sampler(ours);
  const Work peer_work = [peer] { peer->run(); };
  std::optional<Sampler> peer_sampler;
  if (peer != nullptr) peer_sampler.emplace(peer_work);
  const double begin = now();
  for (; row.rounds < options_.rounds ||
         (row.rounds < kMostTimesRounds * options_.rounds && now() - begin < kCaseSeconds);
       ++row.rounds) {
    if (row.rounds < options_.rounds) {
      progress_(fmt::format("{}: round {} of {}", row.bench_case.describe(), row.rounds + 1,
                            options_.rounds));
    }
    const bool forwards = row.rounds % 2 == 0;
    if (forwards) our_sampler.sample();
    if (!forwards && peer_sampler) peer_sampler->sample();
    probe(kind, row.threads);
    if (forwards && peer_sampler) peer_sampler->sample();
    if (!forwards) our_sampler.sample();
  }
  our_sampler.put_into(row.ours);
  if (!peer_sampler) return;
  peer_sampler->put_into(*row.peer);
  std::vector<double> ratios;
  for (std::size_t i = 0; i < our_sampler.samples().size(); ++i) {
    ratios.push_back(peer_sampler->samples()[i] / our_sampler.samples()[i]);
  }
  row.peer->ratio = median(std::move(ratios));
}

BenchRow Bench::measure(const BenchCase& bench_case) {
  BenchRow row;
  row.bench_case = bench_case;
  row.threads = bench_case.threads.value_or(options_.threads);
  progress_(fmt::format("{}: the oracle", bench_case.describe()));
  omp_set_num_threads(options_.threads);
  const std::unique_ptr<Subject> subject = make_subject(bench_case);
  row.oracle_speed = subject->oracle_speed();
  const Subject::Call call = subject->ours();
  omp_set_num_threads(row.threads);
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
  std::unique_ptr<TimedCall> form;
  if (peer_ != nullptr) form = fastest_form(bench_case, *subject, row.threads, row.peer.emplace());
  if (row.passed()) run_rounds(row, ours, form.get());
  return row;
}

}  // namespace qkv::bench
