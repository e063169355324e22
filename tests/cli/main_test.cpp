// What every subcommand shares: help, the version, and how bad usage is answered.

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "check/subprocess.h"
#include "tests/cli/run_command.h"

namespace qkv {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

TEST(Main, VersionAndHelpGoToStandardOutput) {
  const CommandResult version = run_command({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.output, MatchesRegex("qkv [0-9]+\\.[0-9]+\\.[0-9]+\n"));
  EXPECT_THAT(version.errors, IsEmpty());

  const CommandResult help = run_command({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.output, AllOf(HasSubstr("trace"), HasSubstr("align")));
  EXPECT_THAT(help.errors, IsEmpty());
}

TEST(Main, BadUsageIsOneLineOnStandardErrorAndExitCode2) {
  const std::vector<std::vector<std::string>> command_lines = {
      {}, {"no-such-command"}, {"--no-such-option"}, {"trace", "--no-such-option"}};
  for (const std::vector<std::string>& arguments : command_lines) {
    const CommandResult result = run_command(arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.output, IsEmpty());
    EXPECT_THAT(result.errors, AllOf(StartsWith("qkv: "), EndsWith("\n")));
    EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1);
  }
}

TEST(Main, AnOptionThatIsGivenNothingDoesNotTakeTheNextOne) {
  EXPECT_THAT(run_command({"explain", "copy", "--text=", "--how=zero_value"}).errors,
              HasSubstr("--text: expected 2 to 16 tokens of copy, got 0"));
}

TEST(Main, MissingFileIsNamedOnStandardErrorAndExitCode2) {
  const CommandResult result = run_command({"trace", "no-such-file.safetensors"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, IsEmpty());
  EXPECT_THAT(result.errors, AllOf(StartsWith("qkv: "), HasSubstr("no-such-file.safetensors")));
}

TEST(Main, BadUsageIsExitCode2EvenWhereStandardErrorIsClosed) {
  ProcessRequest request;
  request.arguments = {"/bin/sh", "-c", R"("$0" trace no-such-file 2>&-)", QKV_COMMAND};
  request.error_file = "/dev/null";
  EXPECT_EQ(run_process(request, [](const std::string& /*line*/) {}), 2);
}

TEST(Main, OutputThatCannotBeWrittenIsExitCode2) {
  ProcessRequest request;
  request.arguments = {"/bin/sh", "-c", R"("$0" align --list > /dev/full)", QKV_COMMAND};
  request.error_file = "/dev/null";
  EXPECT_EQ(run_process(request, [](const std::string& /*line*/) {}), 2);
}

}  // namespace
}  // namespace qkv
