// A child process whose output is read line by line.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace qkv {

struct ProcessRequest {
  std::vector<std::string> arguments;  ///< the program first, looked up on the PATH
  std::string error_file;              ///< where its standard error goes
};

/// Runs to the end and returns the exit code, or 128 and the number of the signal that ended it. Keyboard
/// interrupts meanwhile reach the child only, as with system(3), so that the caller can clean up. Throws
/// std::system_error where the program cannot be started.
int run_process(const ProcessRequest& request,
                const std::function<void(const std::string&)>& on_output_line);

}  // namespace qkv
