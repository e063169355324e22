#pragma once

#include "cli/commands.h"

namespace qkv::cli {

/// `qkv plan`: how the engine divides a call, and what it skips.
Command add_plan_command(CLI::App& app);

}  // namespace qkv::cli
