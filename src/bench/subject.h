// A case made ready to be measured: inputs drawn, our call bound to them, and the oracle to hold results against.
#pragma once

#include <functional>
#include <memory>

#include "bench/bench_case.h"
#include "check/peer.h"
#include "qkv/engine.h"

namespace qkv::bench {

/// How far a result is from the oracle's, relative to the oracle's largest entry.
struct OracleCheck {
  double difference = 0;  ///< infinite where a NaN stands where there should be none
  double allowed = 0;
  bool passed() const noexcept { return difference <= allowed; }
};

class Subject {
 public:
  using Call = std::function<void(const engine::Options&)>;

  virtual ~Subject() = default;

  /// Our call, that overwrites results().
  virtual Call ours() = 0;
  /// Under the names of TimedCall::results().
  virtual TensorFile results() const = 0;
  /// The same for a TimedPeer, which reads our inputs where they lie: as long as the subject lives.
  virtual PeerCall peer_call() const = 0;
  /// The oracle makes what check() holds results against: once before that, and again to be measured.
  virtual void run_oracle() = 0;
  /// Of these operations, counted as the case's.
  virtual double oracle_flops() const = 0;
  /// Holds results against the oracle. Output: all rows of small cases, the first, the middle and the last of large ones,
  /// or the last sample of a module. Gradients: those of the last head, or with respect to the last sample.
  virtual OracleCheck check(const TensorFile& results) const = 0;
};

/// Draws the inputs from N(0,1). Throws std::bad_alloc.
std::unique_ptr<Subject> make_subject(const BenchCase& bench_case);

}  // namespace qkv::bench
