// Child processes: one whose output is read line by line, and one that is talked with.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
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

/// A child process that answers a line with a line, and ends when its input does.
class AnsweringProcess {
 public:
  /// Throws std::system_error where the program cannot be started.
  explicit AnsweringProcess(const ProcessRequest& request);
  AnsweringProcess(const AnsweringProcess&) = delete;
  AnsweringProcess& operator=(const AnsweringProcess&) = delete;
  /// Ends its input and waits.
  ~AnsweringProcess();

  /// Absent where the process ended instead of answering; later calls give the same.
  std::optional<std::string> ask(const std::string& line);

 private:
  int socket_ = -1;  // its standard input and output
  pid_t child_ = 0;
  std::string pending_;
};

}  // namespace qkv
