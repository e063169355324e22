// qkv lab: the lesson's experiments, run and written onto a page.
#pragma once

#include "cli/commands.h"

namespace qkv::cli {

Command add_lab_command(CLI::App& app);

}  // namespace qkv::cli
