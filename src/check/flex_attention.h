// PyTorch's FlexAttention as what is measured against. It has no C++ API and no backward on CPUs: a Python in another process
// runs it (peers/flex_attention.py) and measures itself.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "check/timed_peer.h"

namespace qkv {

enum class FlexMode : std::uint8_t {
  Compiled,  ///< as one uses it: by torch.compile, which takes a C++ compiler and some seconds a mask
  Eager,     ///< the same formula as tensors of scores: slow, for tests
};

struct FlexOptions {
  std::optional<std::string> program = std::nullopt;  ///< see find_python
  FlexMode mode = FlexMode::Compiled;
  PeerTuning tuning = PeerTuning::Best;
};

/// Takes peer_function::attention with a rule and without gradients, in float32. Python starts at the first prepare(), which
/// throws PeerMissing where there is none, or no PyTorch; a call whose first run fails (no compiler) throws
/// std::runtime_error. Calls are good until the next prepare().
std::unique_ptr<TimedPeer> make_flex_attention_peer(FlexOptions options = {});

}  // namespace qkv
