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

  /// Our call, that overwrites output(). Empty where the engine does not have the pass.
  virtual Call ours() = 0;
  /// Our result, in the terms of the peer.
  virtual StoredTensor output() const = 0;
  /// The same for a TimedPeer, which reads our inputs where they lie: as long as the subject lives.
  virtual PeerCall peer_call() const = 0;
  /// Holds a result against the oracle: all rows of small cases, the first, the middle and the last of large ones.
  virtual OracleCheck check(const StoredTensor& output) const = 0;
  /// Operations a second that the oracle made of the rows that were checked.
  virtual double oracle_speed() const = 0;
};

/// Draws the inputs from N(0,1). Throws std::bad_alloc.
std::unique_ptr<Subject> make_subject(const BenchCase& bench_case);

}  // namespace qkv::bench
