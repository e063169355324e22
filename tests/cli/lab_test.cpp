// `qkv lab` as a person runs it, as far as no experiment runs to its end.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "tests/cli/run_command.h"
#include "tests/temporary_directory.h"

extern char** environ;

namespace qkv {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

/// Refused at once: nothing is run or printed.
std::string refusal(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "lab");
  const CommandResult result = run_command(arguments);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, IsEmpty());
  return result.errors;
}

TEST(LabCommand, ListsItsExperimentsInTheHelp) {
  const CommandResult result = run_command({"lab", "--help"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, AllOf(HasSubstr("\n  scale           §2  "), HasSubstr("Exit code:")));
}

TEST(LabCommand, RefusesAnUnknownExperiment) {
  EXPECT_THAT(refusal({"scale", "scales"}),
              AllOf(StartsWith("qkv: lab: NAME: expected all or one of projections, scale, "),
                    EndsWith(", got scales\n")));
}

TEST(LabCommand, RefusesATextThatCannotBeRead) {
  const TemporaryDirectory folder;
  EXPECT_THAT(refusal({"all", "--text", folder.file("none.txt")}), HasSubstr("none.txt: "));
  EXPECT_THAT(refusal({"all", "--text", folder.file("")}), HasSubstr("directory"));
  std::ofstream(folder.file("empty.txt"));
  EXPECT_THAT(refusal({"all", "--text", folder.file("empty.txt")}),
              EndsWith("empty.txt: expected a text to train on, got an empty file\n"));
}

TEST(LabCommand, RefusesATextThatNothingCanBeLearnedFromOrThatNobodyReads) {
  const TemporaryDirectory folder;
  std::ofstream(folder.file("same.txt")) << std::string(5000, 'a');
  EXPECT_THAT(refusal({"causal", "--text", folder.file("same.txt")}),
              EndsWith("same.txt: expected a text to train on, got one byte again and again\n"));
  std::ofstream(folder.file("words.txt")) << "words";
  EXPECT_THAT(refusal({"mask", "--text", folder.file("words.txt")}),
              EndsWith("--text: expected an experiment that trains on a text (causal, heads), got "
                       "mask\n"));
}

TEST(LabCommand, RefusesABugThatNoModelIsTrainedWith) {
  EXPECT_THAT(refusal({"all", "--inject", "Z9"}),
              AllOf(HasSubstr("--inject: expected one of "), HasSubstr("Z9")));
  EXPECT_THAT(refusal({"mask", "--inject", "M8"}),
              AllOf(HasSubstr("--inject: expected an experiment that trains (projections"),
                    EndsWith(", got mask\n")));
}

TEST(LabCommand, RefusesAFolderThatCannotBeMade) {
  const TemporaryDirectory folder;
  std::ofstream(folder.file("file")) << "in the way";
  EXPECT_THAT(refusal({"scale", "--out", folder.file("file") + "/page"}),
              HasSubstr("file/page: cannot make the folder: Not a directory"));
  EXPECT_THAT(refusal({"scale", "--out", folder.file("file")}), HasSubstr("file: "));
  EXPECT_THAT(refusal({"scale", "--out", ""}), EndsWith("--out: expected a folder, got \"\"\n"));
  std::filesystem::create_directory(folder.file("index.html"));
  EXPECT_THAT(refusal({"scale", "--out", folder.file("")}),
              HasSubstr("index.html: expected a regular file, got a directory"));
}

/// A command that has begun; its output goes nowhere, its errors to a file.
pid_t start(const std::vector<std::string>& arguments, const std::string& error_file) {
  std::vector<std::string> all = {QKV_COMMAND};
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& argument : all) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 2, error_file.c_str(), O_WRONLY | O_CREAT, 0600);
  pid_t child = 0;
  EXPECT_EQ(posix_spawn(&child, QKV_COMMAND, &actions, nullptr, pointers.data(), environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  return child;
}

/// What the kernel says of the signals that a process handles.
bool handles(pid_t child, int signal) {
  std::ifstream status(fmt::format("/proc/{}/status", child));
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("SigCgt:")) continue;
    return (std::stoull(line.substr(7), nullptr, 16) >> (signal - 1) & 1U) != 0;
  }
  return false;
}

TEST(LabCommand, LeavesThePageAloneWhereItIsInterrupted) {
  const TemporaryDirectory folder;
  std::ofstream(folder.file("index.html")) << "an older page";
  const std::string errors = folder.file("errors");
  const pid_t child = start({"lab", "complexity", "--out", folder.file("")}, errors);
  while (!handles(child, SIGINT)) std::this_thread::yield();
  ASSERT_EQ(kill(child, SIGINT), 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
  std::ifstream message(errors);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(message), {}),
            fmt::format("qkv: lab: interrupted in complexity; nothing was written to {}\n",
                        folder.file("")));
  std::ifstream page(folder.file("index.html"));
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(page), {}), "an older page");
  EXPECT_THAT(folder.names(), UnorderedElementsAre("errors", "index.html"));
}

}  // namespace
}  // namespace qkv
