// Measures: ours, the peer and the machine's limits in turn, in one run.
//
// Speeds drift by a factor of two from minute to minute on a machine that others use; what was measured in the same
// moment can be compared. So a case goes in rounds, and a round runs each of them once: ours, a probe of the limit, the
// peer, and the next round the other way about. "% of the limit" is best over best, the ratio to the peer is the
// median of the rounds' ratios.
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

/// Without times where a result was wrong.
struct BenchRow {
  BenchCase bench_case;
  int threads = 1;
  Measured ours;
  std::optional<MeasuredPeer> peer;  ///< absent where there is no peer
  double oracle_speed = 0;           ///< operations a second
  int rounds = 0;

  bool passed() const noexcept { return ours.check.passed() && (!peer || peer->check.passed()); }
  LimitKind limit_kind() const noexcept {
    return bench_case.operation == Operation::Decode ? LimitKind::Read
                                                     : multiply_add_limit(bench_case.dtype);
  }
};

class Bench {
 public:
  using Progress = std::function<void(std::string_view)>;

  /// `peer` may be null. Throws std::invalid_argument "bench: …" where options are wrong.
  Bench(BenchOptions options, TimedPeer* peer, Progress progress);

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
                                          int threads, MeasuredPeer& peer) const;
  void run_rounds(BenchRow& row, const std::function<void()>& ours, TimedCall* peer);

  BenchOptions options_;
  TimedPeer* peer_;
  Progress progress_;
  std::string_view target_;
  LimitProbe probe_;
  std::map<std::pair<LimitKind, int>, double> limits_;
};

}  // namespace qkv::bench
