#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
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

/// In reverse, as CLI11 takes them. "--text=" becomes "--text" and "", for CLI11 would take what comes next as the text.
std::vector<std::string> arguments_of(int argc, char** argv) {
  std::vector<std::string> arguments;
  bool may_be_option = true;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    may_be_option = may_be_option && argument != "--";
    const bool is_empty = may_be_option && argument.starts_with("--") && argument.ends_with('=');
    if (is_empty) argument.pop_back();
    arguments.push_back(std::move(argument));
    if (is_empty) arguments.emplace_back();
  }
  std::ranges::reverse(arguments);
  return arguments;
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
    app.parse(arguments_of(argc, argv));
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
