// `qkv check`: holds what somebody's attention wrote against the oracle, and names the bug.
#pragma once

#include "cli/commands.h"

namespace qkv::cli {

Command add_check_command(CLI::App& app);

}  // namespace qkv::cli
