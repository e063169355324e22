#pragma once

#include <string>

#include "cli/bench_report.h"

namespace qkv::cli {

/// A PNG with two bars a case, ours and the peer's part of the limit, and the ratio beside them. The file appears
/// whole or not at all. Throws FileError where it cannot be written.
void write_bench_png(const std::string& path, const BenchReport& report);

}  // namespace qkv::cli
