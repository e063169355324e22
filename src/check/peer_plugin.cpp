#include "check/peer_plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
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

}  // namespace

std::unique_ptr<Peer> load_torch_peer() {
  const fs::path path = find_plugin();
  // PyTorch holds a BLAS under the same names as ours: with DEEPBIND each keeps its own. The OpenMP
  // runtime is one for both, for it has the same soname and is loaded already.
  void* plugin = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (plugin == nullptr) throw PeerMissing(::dlerror());
  const auto make_peer = reinterpret_cast<MakePeer>(::dlsym(plugin, make_peer_symbol));
  if (make_peer == nullptr) throw PeerMissing(::dlerror());
  return std::unique_ptr<Peer>(make_peer());
}

}  // namespace qkv
