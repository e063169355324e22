#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "cli/align.h"
#include "cli/bench.h"
#include "cli/check.h"
#include "cli/commands.h"
#include "cli/explain.h"
#include "cli/lab.h"
#include "cli/plan.h"
#include "cli/trace.h"
#include "qkv/error.h"

namespace qkv::cli {
namespace {

ExitCode fail(std::string_view message) noexcept {
  // fmt::print would throw where standard error is closed or full; the exit code says enough then.
  static_cast<void>(
      std::fprintf(stderr, "qkv: %.*s\n", static_cast<int>(message.size()), message.data()));
  return BadInput;
}

ExitCode run(const std::vector<Command>& commands) {
  for (const Command& command : commands) {
    if (command.app->parsed()) return command.run();
  }
  return fail("expected a subcommand, see qkv --help");
}

int parse_and_run(int argc, char** argv) {
  CLI::App app{"Exact multi-head attention: look at it, hold it against others, and measure it.",
               "qkv"};
  app.set_version_flag("--version", "qkv " QKV_VERSION);
  app.require_subcommand(0, 1);

  const std::vector<Command> commands{add_trace_command(app),   add_plan_command(app),
                                      add_align_command(app),   add_check_command(app),
                                      add_explain_command(app), add_lab_command(app),
                                      add_bench_command(app)};

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {  // --help or --version
    return app.exit(request);
  } catch (const CLI::ParseError& error) {
    return fail(error.what());
  }
  return run(commands);
}

}  // namespace
}  // namespace qkv::cli

int main(int argc, char** argv) {
  using namespace qkv::cli;
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may grow no further is an error like a full disk
  int code = BadInput;
  try {
    code = parse_and_run(argc, argv);
  } catch (const std::bad_alloc&) {
    return fail("not enough memory");
  } catch (const std::exception& error) {  // std::invalid_argument and qkv::FileError among them
    return fail(error.what());
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return fail("standard output: could not be written");
  }
  return code;
}
