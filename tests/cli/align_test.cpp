// `qkv align` where nothing but the command is needed.
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "qkv/io.h"
#include "tests/cli/run_command.h"

namespace qkv {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kData = QKV_SOURCE_DIR "/data/";

/// A file of this process alone.
std::string temporary_file(const std::string& name) {
  return fmt::format("{}qkv-align-{}-{}", ::testing::TempDir(), ::getpid(), name);
}

CommandResult align(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "align");
  return run_command(arguments);
}

TEST(Align, ListsItsCases) {
  const CommandResult result = align({"--list"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output,
              StartsWith("the lesson's case, causal, self: B=2 H=4 T=S=5 D=16, no biases\n"));
  EXPECT_THAT(result.output, HasSubstr("boolean per head [B*H,T,S], cross: B=3 H=8 T=5 S=7"));
  EXPECT_EQ(result.errors, "");
}

TEST(Align, ListFollowsTheFilterAndSpeaksJson) {
  const auto cases =
      nlohmann::json::parse(align({"--list", "--json", "--case", "float bias"}).output);
  ASSERT_EQ(cases.size(), 4U);
  for (const auto& one : cases)
    EXPECT_THAT(one.at("mask").get<std::string>(), StartsWith("float bias"));
}

TEST(Align, RecordedLayersAreWithinTheTolerance) {
  const CommandResult result =
      align({kData + "minilm-layer0.safetensors", kData + "minilm-layer4.safetensors",
             kData + "smollm2-layer11.safetensors"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, HasSubstr("all-MiniLM-L6-v2 (Apache-2.0), encoder layer 4"));
  EXPECT_THAT(result.output,
              HasSubstr("46 of 46 largest differences are within 1e-05 of what was recorded"));
  EXPECT_THAT(result.output, HasSubstr("left out: queries at padding"));
}

TEST(Align, RecordedLayersInJson) {
  const CommandResult result = align({"--json", kData + "smollm2-layer11.safetensors"});
  EXPECT_EQ(result.exit_code, 0);
  const auto sample = nlohmann::json::parse(result.output).at("samples").at(0);
  ASSERT_EQ(sample.at("rows").size(), 18U);
  for (const auto& row : sample.at("rows")) {
    EXPECT_TRUE(row.at("passed").get<bool>());
    EXPECT_LE(row.at("difference").get<double>(), 1e-5);
    EXPECT_EQ(row.at("allowed").get<double>(), 1e-5);
  }
}

TEST(Align, DifferenceFromARecordedLayerIsExitCodeOne) {
  TensorFile file = read_tensors(kData + "minilm-layer0.safetensors");
  auto weight = file.at("o_proj.weight").to<float, 2>("o_proj.weight");
  weight(0, 0) += 0.5F;
  file.tensors["o_proj.weight"] = store(weight.view());
  const std::string path = temporary_file("changed.safetensors");
  write_tensors(path, file);
  const CommandResult result = align({path});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output, HasSubstr("FAIL\n"));
  EXPECT_THAT(result.output, HasSubstr("; 2 FAIL"));
  std::filesystem::remove(path);
}

TEST(Align, UnknownTensorNameIsExitCodeTwo) {
  TensorFile file = read_tensors(kData + "minilm-layer0.safetensors");
  file.tensors["wq"] = file.at("q_proj.weight");
  const std::string path = temporary_file("unknown.safetensors");
  write_tensors(path, file);
  const CommandResult result = align({path});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.errors,
              StartsWith("qkv: " + path + ": layer sample: tensor names: expected any of "));
  EXPECT_THAT(result.errors, HasSubstr("got \"wq\""));
  EXPECT_EQ(result.output, "");
  std::filesystem::remove(path);
}

TEST(Align, MissingFileIsExitCodeTwo) {
  const CommandResult result = align({"/nowhere/layer.safetensors"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.errors, StartsWith("qkv: /nowhere/layer.safetensors: "));
}

TEST(Align, UnknownCaseIsExitCodeTwo) {
  const CommandResult result = align({"--case", "no such case"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(
      result.errors,
      "qkv: align: --case: expected part of a line of qkv align --list, got \"no such case\"\n");
}

TEST(Align, PythonThatIsNotThereIsExitCodeTwo) {
  const CommandResult result = align({"--case", "no mask", "--python", "/nowhere/python"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.errors,
            "qkv: align: PyTorch in Python: /nowhere/python: No such file or directory\n");
}

TEST(Align, FilesAndCasesExcludeEachOther) {
  const CommandResult result = align({"--case", "causal", kData + "minilm-layer0.safetensors"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.errors, HasSubstr("file excludes --case"));
}

}  // namespace
}  // namespace qkv
