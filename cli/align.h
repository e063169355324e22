#pragma once

#include "cli/commands.h"

namespace qkv::cli {

/// `qkv align`: the module against PyTorch, and against what models recorded.
Command add_align_command(CLI::App& app);

}  // namespace qkv::cli
