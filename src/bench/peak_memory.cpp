#include "bench/peak_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace qkv::bench {
namespace {

/// A line of /proc/self/status, in bytes.
std::optional<std::size_t> status(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string key; file >> key;) {
    std::size_t kilobytes = 0;
    if (key == name + ":" && file >> kilobytes) return kilobytes * 1024;
    file.clear();
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

bool reset_peak() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good();
}

}  // namespace

std::optional<std::size_t> peak_extra_memory(const std::function<void()>& call) {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
  const bool is_reset = reset_peak();
  const auto before = status("VmRSS");
  call();
  const auto peak = status("VmHWM");
  if (!is_reset || !before || !peak) return std::nullopt;
  return *peak - std::min(*peak, *before);
}

}  // namespace qkv::bench
