// Measures: ours, the peers, the oracle and the machine's limits in turn, in one run.
//
// Speeds drift by a factor of two from minute to minute on a machine that others use; what was measured in the same
// moment can be compared. So a case goes in rounds, and a round runs each of them once: ours, a probe of the limit, the
// oracle, the peers, and the next round the other way about. "% of the limit" is best over best, the ratio to a peer is the
// median of the rounds' ratios. The oracle is slow: it goes along as long as half a second lasts.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/bench_case.h"
#include "bench/limits.h"
#include "bench/subject.h"
#include "check/timed_peer.h"

namespace qkv::bench {

struct BenchOptions {
  int threads = 1;
  std::optional<std::string> target = std::nullopt;  ///< of the engine; the fastest where absent
  int rounds = 15;  ///< at least; short calls go in more, for a second at most
};

/// One contestant.
struct Measured {
  OracleCheck check;
  double best = 0;    ///< seconds a call
  double median = 0;  ///< seconds a call
  /// Bytes beyond inputs and outputs, of a call that finds no memory prepared; absent where the system does not tell.
  std::optional<std::size_t> extra_memory;
};

struct MeasuredPeer : Measured {
  std::string form;  ///< the fastest of those that it has
  double ratio = 0;  ///< its time over ours
};

/// The float64 oracle: of large cases it computes some rows or heads, those that results are held against.
struct MeasuredOracle {
  int runs =
      0;  ///< the first of them made what results are held against; the others were in rounds
  double best = 0;   ///< seconds of a run
  double flops = 0;  ///< operations of a run

  /// Of the whole case at that speed.
  double seconds(const BenchCase& bench_case) const { return bench_case.flops() / flops * best; }
};

/// Without times where a result was wrong.
struct BenchRow {
  BenchCase bench_case;
  int threads = 1;
  Measured ours;
  std::optional<MeasuredPeer> peer;  ///< absent where there is no peer
  std::optional<MeasuredPeer> flex;  ///< FlexAttention
  std::string flex_missing;          ///< why it was not measured; empty where nobody asked for it
  MeasuredOracle oracle;
  int rounds = 0;

  bool passed() const noexcept {
    return ours.check.passed() && (!peer || peer->check.passed()) &&
           (!flex || flex->check.passed());
  }
  LimitKind limit_kind() const noexcept {
    return bench_case.operation == Operation::Decode ? LimitKind::Read
                                                     : multiply_add_limit(bench_case.dtype);
  }
};

/// Who is measured beside ours.
struct BenchPeers {
  TimedPeer* torch = nullptr;  ///< none where null
  TimedPeer* flex =
      nullptr;  ///< FlexAttention, asked for the cases that it is measured for; none where null
};

class Bench {
 public:
  using Progress = std::function<void(std::string_view)>;

  /// Throws std::invalid_argument "bench: …" where options are wrong.
  Bench(BenchOptions options, BenchPeers peers, Progress progress);

  /// Measures the limits for one thread and for all.
  void measure_limits();
  BenchRow measure(const BenchCase& bench_case);

  struct Limit {
    LimitKind kind;
    int threads;
    double best;  ///< flops or bytes a second
  };
  /// The best of the whole run, by kind and threads.
  std::vector<Limit> limits() const;

  /// The SIMD target that the engine runs on.
  std::string_view target() const noexcept { return target_; }

 private:
  void probe(LimitKind kind, int threads);
  std::unique_ptr<TimedCall> fastest_form(const BenchCase& bench_case, const Subject& subject,
                                          int threads, TimedPeer& from, MeasuredPeer& peer) const;
  std::unique_ptr<TimedCall> flex_form(const Subject& subject, BenchRow& row) const;
  void measure_oracle(Subject& subject, MeasuredOracle& oracle) const;
  void run_rounds(BenchRow& row, Subject& subject, const std::function<void()>& ours,
                  TimedCall* peer, TimedCall* flex);

  BenchOptions options_;
  BenchPeers peers_;
  Progress progress_;
  std::string_view target_;
  LimitProbe probe_;
  std::map<std::pair<LimitKind, int>, double> limits_;
};

}  // namespace qkv::bench
