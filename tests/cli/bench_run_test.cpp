// qkv bench --quick: what it prints, not how fast anything is.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lab/text_style.h"
#include "tests/cli/run_command.h"

namespace qkv {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Terminal columns of the widest line.
std::size_t width_of(const std::string& text) {
  std::size_t widest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    widest = std::max(widest, lab::display_width(line));
  }
  return widest;
}

TEST(BenchRun, QuickIsATableWithTheLimits) {
  const CommandResult result = run_command({"bench", "--quick", "--rounds", "1", "--without-peer"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(
      result.output,
      AllOf(StartsWith("qkv's engine on "), HasSubstr("  without PyTorch: "),
            HasSubstr("multiply-add float32"), HasSubstr("multiply-add float64"),
            HasSubstr("memory read"), HasSubstr("\nforward, causal, float32\n  1x12x512x64 "),
            EndsWith("Every result that was measured agrees with the oracle.\n")));
  EXPECT_LE(width_of(result.output), 100U);
}

TEST(BenchRun, MissingFlexAttentionIsSaidAloud) {
  ::setenv("QKV_PYTHON", "/nowhere/python", 1);
  const CommandResult result =
      run_command({"bench", "--case", "forward, documents 512", "--rounds", "1", "--threads", "2"});
  ::unsetenv("QKV_PYTHON");
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output,
              HasSubstr("\n  FlexAttention: not measured: /nowhere/python: No such file"));
  EXPECT_LE(width_of(result.output), 100U);
}

TEST(BenchRun, QuickAsJsonAndAsPicture) {
  const std::string picture =
      ::testing::TempDir() + "qkv-bench-" + std::to_string(::getpid()) + ".png";
  const CommandResult result = run_command(
      {"bench", "--quick", "--rounds", "1", "--threads", "2", "--json", "--png", picture});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  const auto report = nlohmann::json::parse(result.output);
  EXPECT_EQ(report["threads"], 2);
  EXPECT_EQ(report["rounds"], 1);
  ASSERT_EQ(report["limits"].size(), 6U);  // three kinds, for one thread and for two
  for (const auto& limit : report["limits"]) {
    EXPECT_GT(limit.value("gflops", limit.value("gb_per_second", 0.0)), 0) << limit;
  }
  const bool has_peer = report["missing"].is_null();
  EXPECT_EQ(report["peer"].empty(), !has_peer);
  ASSERT_EQ(report["rows"].size(), 4U);
  for (const auto& row : report["rows"]) {
    EXPECT_TRUE(row["passed"]) << row;
    const auto& ours = row["ours"];
    const double seconds = ours["best_seconds"];
    EXPECT_GT(seconds, 0);
    EXPECT_GE(ours["median_seconds"], seconds);
    EXPECT_NEAR(ours["gflops"], row["flops"].get<double>() / seconds / 1e9, 1e-6);
    EXPECT_LE(ours["difference_from_oracle"], ours["allowed_difference"]);
    EXPECT_GE(row["oracle"]["runs"], 1);
    EXPECT_GT(row["oracle"]["case_seconds"], 0);
    EXPECT_LE(row["oracle"]["part_of_case"], 1);
    EXPECT_TRUE(row["flex_attention"].is_null() && row["flex_attention_missing"].is_null());
    EXPECT_TRUE(ours.contains("part_of_limit") && ours.contains("extra_bytes"));
    EXPECT_EQ(row["peer"].is_null(), !has_peer);
    if (has_peer) {
      EXPECT_GT(row["peer"]["ratio"], 0);
      EXPECT_NE(row["peer"]["form"], "");
    }
  }
  std::ifstream file(picture, std::ios::binary);
  std::string magic(8, '\0');
  file.read(magic.data(), 8);
  EXPECT_EQ(magic, "\x89PNG\r\n\x1a\n");
  std::filesystem::remove(picture);
}

}  // namespace
}  // namespace qkv
