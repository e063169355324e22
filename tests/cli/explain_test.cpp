// `qkv explain` as a person runs it.
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
using ::testing::Not;
using ::testing::StartsWith;

const std::string kBert = QKV_SOURCE_DIR "/tests/model/goldens/bert";

std::string refusal(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "explain");
  const CommandResult result = run_command(arguments);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, IsEmpty());
  return result.errors;
}

TEST(Explain, RefusesWhatIsNoModel) {
  EXPECT_THAT(
      refusal({"recal"}),
      HasSubstr(
          "explain: MODEL: expected the folder of a sentence encoder, or one of recall, copy, "
          "relay, induction, got \"recal\""));
  const TemporaryDirectory folder;
  EXPECT_THAT(refusal({folder.file(""), "--text", "a", "--with", "b"}),
              HasSubstr("config.json: cannot open"));
  EXPECT_THAT(refusal({kBert, "--text", "a", "--with", "b"}), HasSubstr("bert/"));
}

TEST(Explain, RefusesATextWhereItHasNone) {
  EXPECT_THAT(refusal({kBert, "--with", "b"}),
              HasSubstr("--text: expected the text to explain, got none"));
  EXPECT_THAT(refusal({kBert, "--text", "a"}), HasSubstr("--with: expected a text"));
  EXPECT_THAT(refusal({kBert, "--text", "a", "--class", "b"}),
              HasSubstr("--class: expected two classes or more, got one"));
  EXPECT_THAT(refusal({kBert, "--text", "a", "--with", "b", "--class", "c"}),
              HasSubstr("--with excludes --class"));
  EXPECT_THAT(refusal({"copy", "--with", "a"}),
              HasSubstr("--with: expected the folder of a sentence encoder as MODEL, got copy"));
  EXPECT_THAT(refusal({"copy", "--text", "a"}),
              HasSubstr("--text: expected 2 to 16 tokens of copy, got 1"));
  EXPECT_THAT(refusal({"copy", "--text", "a z"}),
              HasSubstr("--text: expected tokens of copy, a b c d e f g h |, got \"z\""));
}

TEST(Explain, LeavesNoFolderWhereItWritesNothing) {
  const TemporaryDirectory folder;
  refusal({"recal", "--out", folder.file("a/b/c")});
  EXPECT_FALSE(std::filesystem::exists(folder.file("a")));
  std::filesystem::create_directories(folder.file("a"));
  refusal({"recal", "--out", folder.file("a/b/c")});
  EXPECT_TRUE(std::filesystem::exists(folder.file("a")));
  EXPECT_FALSE(std::filesystem::exists(folder.file("a/b")));
}

TEST(Explain, RefusesOptionsThatAreNone) {
  EXPECT_THAT(refusal({"copy", "--how", "asking"}), HasSubstr("--how"));
  EXPECT_THAT(refusal({"copy", "--out", ""}), HasSubstr("--out: expected a folder, got \"\""));
  EXPECT_THAT(refusal({"copy", "--seed", "-1"}), HasSubstr("--seed"));
}

TEST(Explain, SaysWhereTheHeatMapMisleads) {
  const TemporaryDirectory folder;
  const CommandResult result =
      run_command({"explain", "relay", "--quick", "--out", folder.file("page")});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output, AllOf(StartsWith("§8  explain: Where does \""),
                                   HasSubstr("The heat map misleads (raw attention, last layer)"),
                                   HasSubstr("page/index.html\n")));
  std::ifstream results(folder.file("page/results.json"));
  const auto json = nlohmann::json::parse(results)["experiments"][0];
  EXPECT_EQ(json["command"], "qkv explain 'relay' --how swap_token --seed 17 --quick");
  EXPECT_EQ(json["token_maps"][0]["tokens"].size(),
            json["token_maps"][0]["methods"][0]["scores"].size());
}

TEST(Explain, FindsNothingToBlameWhereAttentionReadsTheAnswer) {
  const CommandResult result = run_command({"explain", "copy", "--quick"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output, Not(HasSubstr("The heat map misleads")));
}

// What comes after the second "a" is what came after the first.
TEST(Explain, ReadsATypedTextOfATask) {
  const CommandResult result =
      run_command({"explain", "induction", "--quick", "--text", "a f g e a"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output, AllOf(HasSubstr("Where does \"f\" come from after \"a f g e a\"?"),
                                   HasSubstr("log-probability of \"f\"")));
}

TEST(Explain, GivesTheSameNumbersForTheSameSeed) {
  const CommandResult once = run_command({"explain", "copy", "--quick", "--seed", "5", "--json"});
  EXPECT_EQ(once.exit_code, 0);
  EXPECT_EQ(once.output,
            run_command({"explain", "copy", "--quick", "--seed", "5", "--json"}).output);
}

}  // namespace
}  // namespace qkv
