// PyTorch's Python API as a peer: peers/torch_align.py, run by a Python that has PyTorch.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "check/peer.h"

namespace qkv {

/// The peer runs find_python(program). All calls of one run() share one process.
std::unique_ptr<Peer> make_python_peer(const std::optional<std::string>& program);

}  // namespace qkv
