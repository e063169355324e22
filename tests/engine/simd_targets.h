// The SIMD targets that tests run on.
#pragma once

#include <string>
#include <vector>

#include "qkv/engine.h"

namespace qkv::test {

/// All that this machine has; under the thread sanitizer the fastest alone, for which threads run what does not depend on it.
inline std::vector<std::string> simd_targets() {
  std::vector<std::string> targets = engine::targets();
#ifdef QKV_SANITIZED_THREADS
  targets.resize(1);
#endif
  return targets;
}

}  // namespace qkv::test
