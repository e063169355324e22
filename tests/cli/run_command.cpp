#include "tests/cli/run_command.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include <unistd.h>

#include <fmt/format.h>

#include "check/subprocess.h"

namespace qkv {

CommandResult run_command(const std::vector<std::string>& arguments) {
  const char* scratch = std::getenv("TMPDIR");
  ProcessRequest request;
  request.arguments = {QKV_COMMAND};
  request.arguments.insert(request.arguments.end(), arguments.begin(), arguments.end());
  request.error_file =
      fmt::format("{}/qkv-errors-{}", scratch == nullptr ? "/tmp" : scratch, ::getpid());
  ::setenv("NO_COLOR", "1", 1);

  CommandResult result;
  result.exit_code =
      run_process(request, [&](const std::string& line) { result.output += line + "\n"; });
  std::ifstream errors(request.error_file);
  result.errors.assign(std::istreambuf_iterator<char>(errors), {});
  std::remove(request.error_file.c_str());
  return result;
}

}  // namespace qkv
