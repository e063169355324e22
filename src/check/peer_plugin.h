// PyTorch's C++ API as a peer: a plugin, so that neither the library nor the command links PyTorch.
#pragma once

#include <memory>

#include "check/peer.h"
#include "check/timed_peer.h"

namespace qkv {

/// Loads libqkv_peer_torch.so from beside the running executable, or from where it is installed. It stays
/// loaded for the life of the process. Throws PeerMissing where it is not there or cannot be loaded.
std::unique_ptr<Peer> load_torch_peer();
/// The same plugin as what is measured against.
std::unique_ptr<TimedPeer> load_timed_torch_peer(PeerTuning tuning);

/// What the plugin exports. The interface that it was built with: another one than the command's is not called.
using PeerInterface = const char* (*)();
inline constexpr const char* peer_interface_symbol = "qkv_peer_interface";
/// Makes a peer that the caller owns.
using MakePeer = Peer* (*)();
inline constexpr const char* make_peer_symbol = "qkv_make_peer";
using MakeTimedPeer = TimedPeer* (*)(PeerTuning);
inline constexpr const char* make_timed_peer_symbol = "qkv_make_timed_peer";

}  // namespace qkv
