// The cases of `qkv bench` as Google Benchmark targets: ours alone, for profilers and for comparing two builds.

#include <benchmark/benchmark.h>
#include <omp.h>

#include "bench/bench_case.h"
#include "bench/subject.h"

namespace {

void run(benchmark::State& state, const qkv::bench::BenchCase& one) {
  qkv::engine::Workspace workspace;
  qkv::engine::Options options;
  options.threads = one.threads.value_or(omp_get_max_threads());
  options.workspace = &workspace;
  const auto subject = qkv::bench::make_subject(one);
  subject->run_oracle();
  const auto call = subject->ours();
  for (auto _ : state) call(options);
  if (!subject->check(subject->results()).passed()) {
    state.SkipWithError("the result differs from the oracle's");
  }
  state.counters["flops"] = benchmark::Counter(
      one.flops(), benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
}

}  // namespace

int main(int argc, char** argv) {
  for (const auto& one : qkv::bench::bench_cases()) {
    benchmark::RegisterBenchmark(one.describe().c_str(), run, one)
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
