// `qkv explain`.
#pragma once

#include "cli/commands.h"

namespace qkv::cli {

Command add_explain_command(CLI::App& app);

}  // namespace qkv::cli
