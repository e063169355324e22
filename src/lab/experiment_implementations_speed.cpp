#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "bench/bench.h"
#include "check/peer_plugin.h"
#include "lab/experiment_implementations_parts.h"

namespace qkv::lab {
namespace {

std::vector<bench::BenchCase> cases(bool quick) {
  const Index tokens = quick ? 256 : 1024;
  std::vector<bench::BenchCase> result;
  for (const bench::Pass pass : {bench::Pass::Forward, bench::Pass::ForwardBackward}) {
    bench::BenchCase attention;
    attention.pass = pass;
    attention.mask = bench::BenchMask::Causal;
    attention.heads = 8;
    attention.tokens = tokens;
    attention.width = 64;
    result.push_back(attention);
    bench::BenchCase module = attention;
    module.operation = bench::Operation::Module;
    module.mask = bench::BenchMask::None;
    result.push_back(module);
  }
  return result;
}

/// As many threads as before, when it ends: the measurements set their own.
class ThreadCount {
 public:
  ThreadCount() : count_(omp_get_max_threads()) {}
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;
  ~ThreadCount() { omp_set_num_threads(count_); }

  int get() const noexcept { return count_; }

 private:
  int count_;
};

std::vector<bench::BenchRow> measure(const ExperimentOptions& options, TimedPeer* torch) {
  const ThreadCount threads;
  bench::BenchOptions settings;
  settings.threads = options.threads > 0 ? options.threads : threads.get();
  settings.rounds = options.quick ? 3 : 9;
  double done = 0.5;
  bench::Bench bench(settings, {.torch = torch},
                     [&](std::string_view doing) { report(options, doing, done); });
  std::vector<bench::BenchRow> rows;
  for (const bench::BenchCase& one : cases(options.quick)) {
    rows.push_back(bench.measure(one));
    done += 0.1;
  }
  return rows;
}

Cell memory_cell(const std::optional<std::size_t>& bytes) {
  if (!bytes) return Text{"not told by the system", "系统未提供"};
  return byte_count(static_cast<double>(*bytes));
}

void add_row(Table& table, const bench::BenchRow& row, Text who, const bench::Measured& measured) {
  table.rows.push_back({row.bench_case.describe(), std::move(who), Measured{measured.best, {}, {}},
                        Measured{measured.median, {}, {}}, memory_cell(measured.extra_memory),
                        Measured{measured.check.difference, {}, {}}});
}

Table speed_table(const std::vector<bench::BenchRow>& rows) {
  Table table{"speed",
              {"Time and memory of one call, float32", "一次调用的耗时与内存，float32"},
              {{"case", {"case", "用例"}, {}},
               {"implementation", {"implementation", "实现"}, {}},
               {"best", {"fastest", "最快"}, same("s")},
               {"median", {"median", "中位数"}, same("s")},
               {"memory", {"memory beyond inputs and outputs", "输入输出之外的内存"}, {}},
               {"difference",
                {"difference from the oracle", "与参考实现之差"},
                {"of the largest entry", "相对最大元素"}}},
              {}};
  for (const bench::BenchRow& row : rows) {
    add_row(table, row, {"engine", "引擎"}, row.ours);
    if (row.peer) add_row(table, row, same(row.peer->form), *row.peer);
    table.rows.push_back({row.bench_case.describe(),
                          Text{"oracle, in float64", "参考实现，float64"},
                          Measured{row.oracle.seconds(row.bench_case), {}, {}}, std::string("–"),
                          std::string("–"), std::int64_t{0}});
  }
  return table;
}

}  // namespace

void add_speeds(const ExperimentOptions& options, Experiment& experiment) {
  std::unique_ptr<TimedPeer> torch;
  try {
    torch = load_timed_torch_peer(PeerTuning::AsShipped);
  } catch (const PeerMissing&) {  // the comparison of results has said so
  }
  const std::vector<bench::BenchRow> rows = measure(options, torch.get());
  experiment.tables.push_back(speed_table(rows));
  const bench::BenchRow& first = rows.front();
  const double oracle = first.oracle.seconds(first.bench_case);
  Text found = {fmt::format("{}: engine {}, oracle {}", first.bench_case.describe(),
                            duration(first.ours.best), duration(oracle)),
                fmt::format("{}：引擎 {}，参考实现 {}", first.bench_case.describe(),
                            duration(first.ours.best), duration(oracle))};
  if (first.peer) {
    found.english += fmt::format(", PyTorch {}", duration(first.peer->best));
    found.chinese += fmt::format("，PyTorch {}", duration(first.peer->best));
  }
  const bool right = std::ranges::all_of(rows, &bench::BenchRow::passed);
  experiment.effects.push_back(
      {"fast_and_right",
       {"What is measured is right: every result was held against the oracle first.",
        "被计时的都是正确的结果：计时前都与参考实现核对过。"},
       {found.english + ".", found.chinese + "。"},
       right});
}

}  // namespace qkv::lab
