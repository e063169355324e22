// qkv bench without PyTorch: the list, what is refused, and a run of the small subset.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/run_command.h"

namespace qkv {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

CommandResult bench(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "bench");
  return run_command(arguments);
}

TEST(Bench, ListHasALineACase) {
  const CommandResult result = bench({"--list"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, AllOf(HasSubstr("forward, no mask, 1x12x512x64, float32\n"),
                                   HasSubstr("forward, window 256, 1x12x4096x64, float32\n"),
                                   HasSubstr("module forward, no mask, 8x12x128x32, float32\n")));
  EXPECT_THAT(result.errors, IsEmpty());
}

TEST(Bench, CaseChoosesFromTheList) {
  const CommandResult result = bench({"--list", "--case", "documents"});
  EXPECT_EQ(result.output, "forward, documents 512, 1x12x4096x64, float32\n");
}

TEST(Bench, ListAsJsonCountsOperations) {
  const CommandResult result =
      bench({"--list", "--json", "--case", "forward, causal, 1x12x512x64"});
  const auto list = nlohmann::json::parse(result.output);
  ASSERT_EQ(list.size(), 1U);
  EXPECT_EQ(list[0]["flops"], 4.0 * 12 * 512 * 512 * 64 / 2);
  EXPECT_EQ(list[0]["mask"], "causal");
}

TEST(Bench, BadOptionsAreExitCodeTwo) {
  const auto expect_error = [](const std::vector<std::string>& arguments,
                               const std::string& message) {
    const CommandResult result = bench(arguments);
    EXPECT_EQ(result.exit_code, 2) << message;
    EXPECT_THAT(result.errors, AllOf(StartsWith("qkv: "), HasSubstr(message)));
    EXPECT_THAT(result.output, IsEmpty());
  };
  expect_error({"--case", "no such case"},
               "bench: --case: expected part of a line of qkv bench --list, got \"no such case\"");
  expect_error({"--threads", "0"}, "--threads: expected 1 or more, got 0");
  expect_error({"--threads", "100000"}, "bench: --threads: expected 1 to 1024, got 100000");
  expect_error({"--rounds", "many"}, "--rounds: expected a whole number");
  expect_error({"--target", "MMX"}, "bench: target: expected one of ");
  expect_error({"--png", "/nowhere/picture.png"}, "/nowhere/picture.png");
}

}  // namespace
}  // namespace qkv
