#pragma once

#include "cli/commands.h"

namespace qkv::cli {

/// `qkv bench`: the engine beside PyTorch and the limits of the machine.
Command add_bench_command(CLI::App& app);

}  // namespace qkv::cli
