// `qkv lab` from its first experiment to its page.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include <fmt/format.h>

#include "check/subprocess.h"
#include "tests/cli/run_command.h"
#include "tests/temporary_directory.h"

namespace qkv {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string content(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(LabRun, WritesThePageAndItsNumbers) {
  const TemporaryDirectory folder;
  const std::string out = folder.file("a/page");
  const CommandResult result = run_command({"lab", "mask", "mask", "--quick", "--out", out});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output, AllOf(StartsWith("§4  mask: "), HasSubstr(out + "/index.html\n")));
  const std::string results = content(out + "/results.json");
  const auto json = nlohmann::json::parse(results);
  ASSERT_EQ(json["experiments"].size(), 1U);  // asked for twice, run once
  EXPECT_EQ(json["experiments"][0]["name"], "mask");
  EXPECT_EQ(json["seed"], 17);
  const std::string page = content(out + "/index.html");
  EXPECT_THAT(page, AllOf(StartsWith("<!doctype html>"), HasSubstr("\"name\":\"mask\""),
                          Not(HasSubstr("{{"))));
}

TEST(LabRun, GivesTheSameNumbersForTheSameSeed) {
  const CommandResult once = run_command({"lab", "mask", "--quick", "--seed", "5", "--json"});
  const CommandResult again = run_command({"lab", "mask", "--quick", "--seed", "5", "--json"});
  const CommandResult other = run_command({"lab", "mask", "--quick", "--seed", "6", "--json"});
  EXPECT_EQ(once.exit_code, 0);
  EXPECT_EQ(once.output, again.output);
  EXPECT_NE(once.output, other.output);
}

TEST(LabRun, LeavesNothingHalfWrittenOnAFullDisk) {
  const TemporaryDirectory folder;
  // A file of more than 8 blocks cannot be written, as where the disk is full.
  ProcessRequest request;
  request.arguments = {"/bin/sh",   "-c",    R"(ulimit -f 8; exec "$0" "$@")",
                       QKV_COMMAND, "lab",   "mask",
                       "--quick",   "--out", folder.file("page")};
  request.error_file = folder.file("errors");
  EXPECT_EQ(run_process(request, [](const std::string&) {}), 2);
  EXPECT_EQ(content(request.error_file),
            fmt::format("qkv: {}: cannot write: File too large\n", folder.file("page/index.html")));
  EXPECT_FALSE(std::filesystem::exists(folder.file("page")));
}

}  // namespace
}  // namespace qkv
