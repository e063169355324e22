// `qkv trace` as a person runs it: exit codes, and what is said where.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "qkv/io.h"
#include "tests/cli/run_command.h"
#include "tests/temporary_directory.h"

namespace qkv {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

CommandResult trace(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "trace");
  return run_command(arguments);
}

TEST(TraceCommand, ShowsARealLayerAndThatItIsRight) {
  const CommandResult result = trace({"data/minilm-layer0.safetensors"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.errors, IsEmpty());
  for (const char* piece :
       {"The six shapes", "projection  Q, K, V  [4, 25, 384]", "[9600, 32, 384, 1]  no", "refused",
        "[4, 1, 1, 25]", "stride 0 on H and T", "head 11", "24 [SEP]", "weights  ", "ok",
        "padded queries are computed all the same"}) {
    EXPECT_THAT(result.output, HasSubstr(piece));
  }
  EXPECT_THAT(result.output, Not(HasSubstr("DIFFERS")));
  EXPECT_THAT(result.output, Not(HasSubstr("\x1b")));  // no terminal, no colours
}

TEST(TraceCommand, ExitCode1WhereTheFileDiffers) {
  TensorFile file = read_tensors(std::string(QKV_SOURCE_DIR) + "/data/minilm-layer0.safetensors");
  auto context = file.at("context").to<float, 3>("context");
  context(0, 0, 0) += 0.001F;
  file.tensors["context"] = store(context.view());
  const TemporaryDirectory folder;
  const std::string path = folder.file("differs.safetensors");
  write_tensors(path, file);
  const CommandResult result = trace({path});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output, HasSubstr("DIFFERS"));
  EXPECT_THAT(result.errors, IsEmpty());
}

TEST(TraceCommand, WorksOutTypedNumbers) {
  const CommandResult result = trace({"--type", "1 0; 0 1; 1 1", "--causal"});
  EXPECT_EQ(result.exit_code, 0);
  // scores 1/√2, 1/√2 and √2: weights 0.2483, 0.2483 and 0.5035
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("[[0, -∞, -∞],"), HasSubstr("1. Match"), HasSubstr("0.2483"),
                    HasSubstr("0.5035"), HasSubstr("2. Aggregate"), HasSubstr("[0.7517, 0.7517]")));
}

TEST(TraceCommand, GivenSizesAsJson) {
  const CommandResult result = trace({"--batch", "3", "--tokens", "6", "--model", "16", "--heads",
                                      "8", "--kv-heads", "2", "--causal", "--json", "--head", "7"});
  EXPECT_EQ(result.exit_code, 0);
  const auto json = nlohmann::json::parse(result.output);
  EXPECT_EQ(json["sizes"]["head_width"], 2);
  EXPECT_EQ(json["heads"], (nlohmann::json{7}));
  for (const auto& row : json["weights"][0]) {
    double sum = 0;
    for (const auto& weight : row) sum += weight.get<double>();
    EXPECT_NEAR(sum, 1, 1e-12);
  }
}

TEST(TraceCommand, ColoursOnRequest) {
  EXPECT_THAT(trace({"--type", "1 0; 0 1", "--color=always"}).output, HasSubstr("\x1b[48;5;"));
}

TEST(TraceCommand, EmptyBatchesAndSequences) {
  for (const char* option : {"--batch", "--tokens", "--keys"}) {
    const CommandResult result = trace({option, "0"});
    EXPECT_EQ(result.exit_code, 0) << option;
    EXPECT_THAT(result.output, HasSubstr("nothing to draw: the weights are empty"));
    EXPECT_EQ(trace({option, "0", "--json"}).exit_code, 0) << option;
  }
}

struct BadInput {
  std::string name;
  std::vector<std::string> arguments;
  std::string message;
};

class BadTrace : public ::testing::TestWithParam<BadInput> {};

TEST_P(BadTrace, IsNamedOnStandardErrorWithExitCode2) {
  const CommandResult result = trace(GetParam().arguments);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, IsEmpty());
  EXPECT_THAT(result.errors, AllOf(StartsWith("qkv: "), HasSubstr(GetParam().message)));
  EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1);
}

const std::string kLayer = "data/minilm-layer0.safetensors";

INSTANTIATE_TEST_SUITE_P(
    TraceCommand, BadTrace,
    ::testing::Values(
        BadInput{"Nothing", {}, "trace: input: expected a file, --type"},
        BadInput{"TwoInputs", {"--type", "1", "--batch", "2"}, "got more than one"},
        BadInput{"Ragged", {"--type", "1 0; 0"}, "expected 2 numbers in every row"},
        BadInput{"NoNumber", {"--type", "1 x"}, "expected finite numbers such as"},
        BadInput{"TooMany", {"--type", "1;2;3;4;5;6;7"}, "expected at most 6 tokens (rows), got 7"},
        BadInput{"HeadsDoNotDivide",
                 {"--heads", "3"},
                 "trace: --heads: expected a divisor of the model width 16, got 3"},
        BadInput{"KvHeadsDoNotDivide", {"--kv-heads", "3", "--batch", "1"}, "got 3"},
        BadInput{"Negative", {"--batch", "-1"}, "trace: --batch: expected 0 or more, got -1"},
        BadInput{"Overflow", {"--batch", "9223372036854775807"}, "bytes of memory (--max-memory)"},
        BadInput{"TooLarge",
                 {"--batch", "100000", "--tokens", "100000"},
                 "trace: sizes: expected at most 4294967296 bytes"},
        BadInput{"NanScale", {"--batch", "1", "--scale", "nan"}, "scale: expected a finite number"},
        BadInput{"NegativeWindow", {"--batch", "1", "--window", "-2"}, "got -2"},
        BadInput{"NoCorner",
                 {"--tokens", "4", "--keys", "6", "--causal"},
                 "top-left (query 0 at key 0) or bottom-right (the last query at the last key)"},
        BadInput{"WrongCorner",
                 {"--tokens", "4", "--causal=middle"},
                 "trace: --causal: expected a corner, top-left or bottom-right, got \"middle\""},
        BadInput{"LongLengths", {"--batch", "1", "--lengths", "9"}, "at most S=5, got 9"},
        BadInput{"Sample", {"--batch", "1", "--sample", "1"}, "--sample: expected an index"},
        BadInput{"NoSuchFile", {"no-such.safetensors"}, "no-such.safetensors"},
        BadInput{"NoTensorFile", {"data/README.md"}, "expected a safetensors, .npz or .npy file"},
        BadInput{"Polarity",
                 {kLayer, "--mask-tensor", "attention_mask"},
                 "trace: --true-means: expected keep or drop"},
        BadInput{"PolarityOfNothing", {kLayer, "--true-means", "keep"}, "requires --mask-tensor"},
        BadInput{"BeyondInteger",
                 {"--tokens", "99999999999999999999"},
                 "expected a whole number below 2^63, got \"99999999999999999999\""},
        BadInput{"NegativeSeed", {"--seed", "-1"}, "--seed: expected 0 or more, got -1"},
        BadInput{"NoInteger", {"--lengths", "3,x"}, "expected a whole number"},
        BadInput{"UnknownTensor",
                 {kLayer, "--mask-tensor", "nope", "--true-means", "keep"},
                 "got \"nope\""},
        BadInput{"UnwritablePicture",
                 {"--batch", "1", "--png", "no-such-folder/map.png"},
                 "no-such-folder/map.png: cannot write"}),
    [](const auto& bad) { return bad.param.name; });

/// q [2,4,5,8], k [2,2,6,8], v [2,2,6,3], and what a test changes of them.
TensorFile small_heads() {
  TensorFile file;
  file.tensors["q"] = store(Tensor<double, 4>({2, 4, 5, 8}).view());
  file.tensors["k"] = store(Tensor<double, 4>({2, 2, 6, 8}).view());
  file.tensors["v"] = store(Tensor<double, 4>({2, 2, 6, 3}).view());
  return file;
}

class TraceOfABadFile : public ::testing::Test {
 protected:
  void expect_refused(const std::string& message, std::vector<std::string> options = {}) {
    options.insert(options.begin(), path_);
    const CommandResult result = trace(options);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.output, IsEmpty());
    EXPECT_EQ(result.errors, "qkv: " + message + "\n");
  }

  TemporaryDirectory folder_;
  std::string path_ = folder_.file("heads.npz");
  TensorFile file_ = small_heads();
};

TEST_F(TraceOfABadFile, WrongRank) {
  file_.tensors["q"] = store(Tensor<double, 3>({4, 5, 8}).view());
  write_tensors(path_, file_);
  expect_refused("layer sample: q: expected 4 axes, got [4, 5, 8]");
}

TEST_F(TraceOfABadFile, KeysAndValuesOfOtherLengths) {
  file_.tensors["v"] = store(Tensor<double, 4>({2, 2, 4, 3}).view());
  write_tensors(path_, file_);
  expect_refused("layer sample: v: expected [2, 2, 6, 3], got [2, 2, 4, 3]");
}

TEST_F(TraceOfABadFile, MaskOfAWrongShape) {
  file_.tensors["mask"] = store(Tensor<bool, 4>({2, 5, 1, 6}).view());
  write_tensors(path_, file_);
  expect_refused(
      "trace: mask: expected the shape of a boolean tensor to broadcast to [2, 4, 5, 6], got "
      "[2, 5, 1, 6]",
      {"--mask-tensor", "mask", "--true-means", "drop"});
}

TEST_F(TraceOfABadFile, UnknownTensor) {
  file_.tensors["query"] = file_.tensors["q"];
  write_tensors(path_, file_);
  const CommandResult result = trace({path_});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.errors, AllOf(StartsWith("qkv: layer sample: tensor names: expected any of "),
                                   EndsWith("got \"query\"\n")));
}

TEST_F(TraceOfABadFile, Truncated) {
  path_ = folder_.file("heads.safetensors");
  write_tensors(path_, file_);
  const auto size = std::filesystem::file_size(path_);
  std::filesystem::resize_file(path_, size - 8);
  const CommandResult result = trace({path_});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, IsEmpty());
  EXPECT_THAT(result.errors, AllOf(StartsWith("qkv: " + path_ + ": at byte "),
                                   HasSubstr("expected"), HasSubstr("got")));
}

TEST(TraceCommand, WritesAPictureButNeverOverItsInput) {
  const TemporaryDirectory folder;
  const std::string picture = folder.file("map.png");
  EXPECT_EQ(trace({"--batch", "1", "--png", picture}).exit_code, 0);
  EXPECT_GT(std::filesystem::file_size(picture), 1000U);

  const std::string copy = folder.file("layer.safetensors");
  std::filesystem::copy_file(std::string(QKV_SOURCE_DIR) + "/" + kLayer, copy);
  const auto size = std::filesystem::file_size(copy);
  const CommandResult refused = trace({copy, "--png", copy});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.errors, HasSubstr("expected another file than the one that is read"));
  EXPECT_EQ(std::filesystem::file_size(copy), size);
}

}  // namespace
}  // namespace qkv
