#pragma once

#include "cli/commands.h"

namespace qkv::cli {

/// `qkv trace`: the six shapes of attention, its mask and its heat maps.
Command add_trace_command(CLI::App& app);

}  // namespace qkv::cli
