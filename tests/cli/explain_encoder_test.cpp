// `qkv explain` on the files of a real sentence encoder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/run_command.h"
#include "tests/temporary_directory.h"

namespace qkv {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

const std::string kCat = "The cat sat on the warm windowsill.";
const std::string kKitten = "A kitten rests in the sun.";

CommandResult explained(const std::string& model, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"explain", model, "--quick"});
  return run_command(arguments);
}

std::string refusal(const std::string& model, std::vector<std::string> arguments) {
  const CommandResult result = explained(model, std::move(arguments));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, IsEmpty());
  return result.errors;
}

TEST(ExplainEncoder, FindsTheWordThatTwoSentencesShareTheSenseOf) {
  const TemporaryDirectory folder;
  const CommandResult result =
      explained(QKV_MINILM, {"--text", kCat, "--with", kKitten, "--out", folder.file("page")});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output, AllOf(StartsWith("§8  explain: Why is \"The cat sat"),
                                   HasSubstr("page/index.html\n")));
  std::ifstream results(folder.file("page/results.json"));
  const auto json = nlohmann::json::parse(results)["experiments"][0];
  EXPECT_EQ(json["token_maps"][0]["tokens"].size(), 11);
  EXPECT_EQ(json["heat_maps"][0]["query_labels"][2], "cat");
  for (const auto& row : json["tables"][0]["rows"]) {
    if (row["method"]["en"] != "token replaced by the baseline") continue;
    EXPECT_EQ(row["verdict"]["en"], "agrees: \"cat\"");
  }
}

TEST(ExplainEncoder, SaysWhyOneClassAndNotTheNext) {
  const CommandResult result = explained(
      QKV_MINILM,
      {"--text", kCat, "--class", "A stock exchange.", "--class", kKitten, "--class", "A dog."});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(
      result.output,
      AllOf(HasSubstr("nearer to \"A kitten rests in the sun.\" (0.515) than to \"A dog.\""),
            HasSubstr("minus that to \"A dog.\"")));
}

TEST(ExplainEncoder, RefusesTextsThatItCannotRead) {
  EXPECT_THAT(refusal(QKV_MINILM, {"--text", " ", "--with", kCat}),
              HasSubstr("--text: expected a text of one token or more, got \" \""));
  EXPECT_THAT(refusal(QKV_MINILM, {"--text", kCat, "--class", kCat, "--class", ""}),
              HasSubstr("--class: expected a text of one token or more"));
  EXPECT_THAT(refusal(QKV_MINILM, {"--text", "caf\xe9", "--with", kCat}),
              HasSubstr("--text: expected UTF-8, got other bytes"));
  EXPECT_THAT(refusal(QKV_MINILM, {"--text", kKitten, "--class", "cat", "--class", "CAT"}),
              HasSubstr("got \"cat\" and \"CAT\", which are equally near"));
  std::string words;
  for (int i = 0; i < 600; ++i) words += "word ";
  EXPECT_THAT(refusal(QKV_MINILM, {"--text", kCat, "--with", words}),
              HasSubstr("--with: expected at most 256 tokens, first and last among them, got 602"));
  EXPECT_THAT(refusal(QKV_MINILM, {"--text", kCat, "--with", kCat, "--how", "swap_token"}),
              HasSubstr("--how: expected hide_key, zero_value"));
}

TEST(ExplainEncoder, RefusesAFolderWithoutOneOfItsFiles) {
  const std::vector<std::string> files = {"config.json", "model.safetensors", "modules.json",
                                          "vocab.txt", "1_Pooling"};
  for (const char* missing : {"config.json", "model.safetensors", "vocab.txt", "1_Pooling"}) {
    const TemporaryDirectory folder;
    for (const std::string& file : files) {
      if (file == missing) continue;
      std::filesystem::create_symlink(std::string(QKV_MINILM) + "/" + file, folder.file(file));
    }
    EXPECT_THAT(refusal(folder.file(""), {"--text", kCat, "--with", kKitten}), HasSubstr(missing));
  }
}

}  // namespace
}  // namespace qkv
