// Runs the built qkv as a person would.
#pragma once

#include <string>
#include <vector>

namespace qkv {

struct CommandResult {
  int exit_code = 0;
  std::string output;
  std::string errors;
};

/// Runs `qkv arguments…` in the root of the repository, without colours.
CommandResult run_command(const std::vector<std::string>& arguments);

}  // namespace qkv
