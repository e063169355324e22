// How much more memory a call takes at its highest.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

namespace qkv::bench {

/// The rise of the process's resident memory while `call` runs, from its peak as Linux counts it (VmHWM, reset through
/// /proc/self/clear_refs; exact to some 100 KiB a thread). What earlier calls freed is given back to the system first. Absent
/// where the system does not tell; `call` has run all the same.
std::optional<std::size_t> peak_extra_memory(const std::function<void()>& call);

}  // namespace qkv::bench
