// Somebody else's attention, to be measured beside ours.
//
// Functions, as PeerCall::function (the inputs stay where they are and must outlive the call):
//
//   peer_function::attention   query, key and value [B,H,T,D]; attn_mask broadcasts to [B,H,T,S] (bool: true keeps;
//                              or a float bias); causal: query t sees keys up to t
//   peer_function::decode      query [1,H,T,D], the last T of S tokens; key and value [N,Hkv,S,D], of which the calls
//                              take one after the other
//   peer_function::module_cpp  query [B,T,D] and the parameters of nn.MultiheadAttention; self attention
//
// With output_gradient, of the shape of the output, the gradients of Σ output·output_gradient are computed too, with
// respect to query, key and value, or to query and the parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "check/peer.h"

namespace qkv {

/// What a peer in another process measures itself, for here the way there and back would be in it.
struct MeasuredElsewhere {
  double seconds = 0;                       ///< of the latest run
  std::optional<std::size_t> extra_memory;  ///< of a call, in bytes beyond inputs and outputs
};

/// A call made ready: everything but the work itself has been done.
class TimedCall {
 public:
  virtual ~TimedCall() = default;
  /// The work. It keeps its result.
  virtual void run() = 0;
  /// Of the latest run: "output", [B,H,T,D] or [B,T,D] of a module, and the gradients "random.NAME".
  virtual TensorFile results() const = 0;
  /// Which of the peer's forms it is.
  virtual std::string form() const = 0;
  /// Absent where the call runs in this process.
  virtual std::optional<MeasuredElsewhere> measured_elsewhere() const { return std::nullopt; }
};

enum class PeerTuning : std::uint8_t {
  Best,       ///< what makes the peer fastest and leaves its results right
  AsShipped,  ///< as who installs it finds it
};

class TimedPeer {
 public:
  virtual ~TimedPeer() = default;
  /// What it is and what was tuned for it, a line each.
  virtual std::vector<std::string> describe() const = 0;
  /// Every form that the peer has for the call, to be run on that many threads until the next prepare(). Throws
  /// std::runtime_error with what the peer said.
  virtual std::vector<std::unique_ptr<TimedCall>> prepare(const PeerCall& call, int threads) = 0;
};

}  // namespace qkv
