#include "check/peer_plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <string_view>
#include <system_error>

#include "check/executable_folder.h"

namespace qkv {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPlugin = "libqkv_peer_torch.so";

fs::path find_plugin() {
  const fs::path folder = executable_folder();
  for (const fs::path& candidate : {folder / kPlugin, folder / QKV_PLUGIN_FOLDER / kPlugin}) {
    std::error_code ignored;
    if (fs::exists(candidate, ignored)) return candidate;
  }
  throw PeerMissing(
      fmt::format("{}: not beside the command nor installed; it is built where CMake finds PyTorch "
                  "(QKV_TORCH=ON says why it does not)",
                  kPlugin));
}

/// The plugin, of the same interface as this.
void* open_plugin() {
  const fs::path path = find_plugin();
  // PyTorch brings libraries of its own under names that a program may have, too: with DEEPBIND each keeps its own. The OpenMP
  // runtime is one for both, for it has the same soname and is loaded already.
  void* plugin = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (plugin == nullptr) throw PeerMissing(::dlerror());
  const auto interface = reinterpret_cast<PeerInterface>(::dlsym(plugin, peer_interface_symbol));
  if (interface == nullptr || std::string_view(interface()) != QKV_PEER_INTERFACE) {
    throw PeerMissing(fmt::format("{}: built for another version of qkv", path.string()));
  }
  return plugin;
}

/// A function that the plugin exports.
template <class Function>
Function find_symbol(const char* name) {
  const auto function = reinterpret_cast<Function>(::dlsym(open_plugin(), name));
  if (function == nullptr) throw PeerMissing(::dlerror());
  return function;
}

}  // namespace

std::unique_ptr<Peer> load_torch_peer() {
  return std::unique_ptr<Peer>(find_symbol<MakePeer>(make_peer_symbol)());
}

std::unique_ptr<TimedPeer> load_timed_torch_peer(PeerTuning tuning) {
  return std::unique_ptr<TimedPeer>(find_symbol<MakeTimedPeer>(make_timed_peer_symbol)(tuning));
}

}  // namespace qkv
