// Where a call runs: its SIMD target and its threads.
#pragma once

#include <string_view>

#include "kernels/kernel_table.h"
#include "qkv/engine.h"

namespace qkv::engine {

struct Setting {
  const kernels::Target* target = nullptr;
  int threads = 1;
  std::optional<Dropout> dropout;  // absent where nothing would be dropped
};

/// Checks the options. Throws std::invalid_argument "operation: threads: …" and so on.
Setting setting_of(std::string_view operation, const Options& options);

}  // namespace qkv::engine
