// The subcommands of qkv, one file each.
//
// add_<name>_command(app) declares the subcommand, its options and its help on `app`, and returns what is
// to run once the whole command line has been parsed. Options live in a shared_ptr that the closure keeps:
//
//   Command add_trace_command(CLI::App& app) {
//     const auto options = std::make_shared<TraceOptions>();
//     CLI::App* command = app.add_subcommand("trace", "Show the six shapes of attention");
//     command->add_option("file", options->file, "A .safetensors, .npz or .npy file");
//     return {command, [options] { return trace(*options); }};
//   }
//
// The closure prints its result on standard output and returns the exit code: Ok, or DifferenceFound
// where it was asked to compare and found a difference. Bad input is thrown: main turns
// std::invalid_argument, qkv::FileError and std::bad_alloc into "qkv: MESSAGE" on standard error and BadInput.
#pragma once

#include <functional>

#include <CLI/CLI.hpp>

namespace qkv::cli {

enum ExitCode : int { Ok = 0, DifferenceFound = 1, BadInput = 2, Stopped = 130 };

struct Command {
  CLI::App* app;
  std::function<ExitCode()> run;
};

}  // namespace qkv::cli
