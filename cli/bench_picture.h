#pragma once

#include <cstddef>
#include <vector>

#include "cli/bench_report.h"

namespace qkv::cli {

/// A PNG with two bars a case, ours and the peer's part of the limit, and the ratio beside them.
std::vector<std::byte> bench_png(const BenchReport& report);

}  // namespace qkv::cli
