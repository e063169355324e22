#pragma once

#include <cstddef>
#include <vector>

#include "cli/bench_report.h"

namespace qkv::cli {

/// A PNG with a bar for each contestant of a case, its part of the limit, and the ratios beside the peers'.
std::vector<std::byte> bench_png(const BenchReport& report);

}  // namespace qkv::cli
