// `qkv plan` as a person runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "qkv/engine.h"
#include "tests/cli/run_command.h"

namespace qkv {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

CommandResult plan(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "plan");
  return run_command(arguments);
}

/// The portable target is everywhere; its blocks have 6 rows.
std::vector<std::string> portable(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--target", engine::targets().back()});
  return arguments;
}

TEST(PlanCommand, DrawsTheBlocksOfAHead) {
  const CommandResult result = plan(portable({"--heads", "1", "--tokens", "24", "--keys", "768",
                                              "--causal=bottom-right", "--threads", "1"}));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.errors, IsEmpty());
  EXPECT_THAT(
      result.output,
      AllOf(HasSubstr("float32: B=1, H=1, Hkv=1, T=24, S=768, Dk=64, Dv=64\n"),
            HasSubstr("mask       causal (bottom-right)\n"),
            HasSubstr("blocks of 6 rows × 256 keys\n"), HasSubstr("threads    1\n"),
            // 24 · 768 pairs without 23 + 22 + … + 0
            HasSubstr("sample 0, kv head 0                 0          4          8    98.50 %\n"),
            Not(HasSubstr("total")), HasSubstr("          0 ##+\n          6 ##+\n")));
}

TEST(PlanCommand, SharesACharacterAmongTheBlocksOfALongCall) {
  const CommandResult result = plan(portable({"--heads", "4", "--kv-heads", "2", "--tokens", "3072",
                                              "--documents", "1024", "--head", "3"}));
  EXPECT_EQ(result.exit_code, 0);
  // 6144 rows a kv head: 1024 blocks, 32 of them a line; documents begin at the border of a line.
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("sample 0, kv heads 0-1 "), HasSubstr("  total "),
                    HasSubstr("kv head 1 (query heads 2-3)"),
                    HasSubstr("a character is 192 rows × 256 keys, + also where its blocks differ"),
                    HasSubstr("          0 ####........\n"),
                    HasSubstr("       2976 ........####\n"), HasSubstr("33.33 %")));
}

TEST(PlanCommand, GivesJson) {
  const CommandResult result = plan(
      portable({"--batch", "2", "--heads", "6", "--kv-heads", "2", "--tokens", "2", "--keys", "300",
                "--lengths", "256,300", "--dtype", "bfloat16", "--sample", "1", "--json"}));
  EXPECT_EQ(result.exit_code, 0);
  const auto json = nlohmann::json::parse(result.output);
  EXPECT_EQ(json["sizes"]["Hkv"], 2);
  EXPECT_EQ(json["dtype"], "bfloat16");
  EXPECT_EQ(json["mask"], "key lengths [256, 300]");
  EXPECT_EQ(json["target"], engine::targets().back());
  EXPECT_EQ(json["division"], "keys");
  EXPECT_EQ(json["rows"], 6);
  EXPECT_EQ(json["heads"].size(), 4U);
  EXPECT_EQ(json["heads"][1]["hidden"], 1);
  EXPECT_EQ(json["heads"][2]["full"], 2);
  EXPECT_EQ(json["total"]["visible_pairs"], 2 * 6 * (256 + 300));
  EXPECT_GT(json["workspace_bytes"], 0);
  EXPECT_EQ(json["map"]["rows"], (nlohmann::json{"##"}));
}

TEST(PlanCommand, OfBackward) {
  const std::vector<std::string> sizes{
      "--heads",   "3", "--tokens",  "48", "--keys", "384", "--causal=bottom-right",
      "--threads", "1", "--backward"};
  const CommandResult result = plan(portable(sizes));
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  // Queries stand at positions 336 … 383: all see the first 192 keys, none all of the others but the last.
  EXPECT_THAT(
      result.output,
      AllOf(StartsWith("engine::backward, float32: B=1, H=3, Hkv=3, T=48, S=384, Dk=64, Dv=64\n"),
            HasSubstr("blocks of 6 rows × 192 keys\n"),
            HasSubstr("by keys, 1 chunk a kv head; past each go all rows, in 1 tile of 48\n"),
            HasSubstr("whole      3 of 3 kv heads\n"), HasSubstr("dropout    off\n"),
            HasSubstr("  workspace  "),
            HasSubstr("kv heads 0-2              0          8          8"),
            HasSubstr("          0 #+\n")));
  std::vector<std::string> as_json = sizes;
  as_json.insert(as_json.end(), {"--json", "--dropout", "0.1"});
  const auto json = nlohmann::json::parse(plan(as_json).output);
  EXPECT_EQ(json["function"], "engine::backward");
  EXPECT_EQ(json["division"], "chunks");
  EXPECT_EQ(json["whole_heads"], 3);
  EXPECT_EQ(json["block_keys"], 192);
  EXPECT_EQ(json["dropout"], 0.1);
  EXPECT_GT(json["workspace_bytes"], 0);
}

TEST(PlanCommand, OfACache) {
  const std::vector<std::string> sizes{"--batch", "2",        "--heads", "4",       "--kv-heads",
                                       "2",       "--tokens", "3",       "--cache", "--lengths",
                                       "300,256", "--dtype",  "bfloat16"};
  const CommandResult result = plan(portable(sizes));
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(
      result.output,
      AllOf(StartsWith("engine::forward(cache), bfloat16: B=2, H=4, Hkv=2, T=3, S=300, Dk=64, "),
            HasSubstr("mask       causal at the positions of the last T tokens\n"),
            HasSubstr("division   by keys: few rows (6) a kv head"),
            HasSubstr("sample 0, kv heads 0-1              0          1          1"),
            HasSubstr("sample 1, kv heads 0-1              1          1          0")));
  // Tokens 297, 298 and 299 see 4 keys each, in the first segment none.
  std::vector<std::string> windowed = sizes;
  windowed.insert(windowed.end(), {"--cache-window", "3", "--json"});
  const auto json = nlohmann::json::parse(plan(portable(windowed)).output);
  EXPECT_EQ(json["function"], "engine::forward(cache)");
  EXPECT_EQ(json["sizes"]["S"], 300);
  EXPECT_EQ(json["heads"][0]["visible_pairs"], 2 * 3 * 4);
  EXPECT_EQ(json["map"]["rows"], (nlohmann::json{".+"}));
}

TEST(PlanCommand, OfNothing) {
  EXPECT_THAT(plan({"--batch", "0"}).output, HasSubstr("nothing to do"));
  EXPECT_THAT(plan({"--tokens", "0", "--keys", "5"}).output, HasSubstr("nothing to do"));
  EXPECT_THAT(plan({"--keys", "0"}).output, HasSubstr("there are no keys"));
  EXPECT_EQ(plan({"--keys", "0", "--json"}).exit_code, 0);
}

struct BadInput {
  std::string name;
  std::vector<std::string> arguments;
  std::string message;
};

class BadPlan : public ::testing::TestWithParam<BadInput> {};

TEST_P(BadPlan, IsNamedOnStandardErrorWithExitCode2) {
  const CommandResult result = plan(GetParam().arguments);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, IsEmpty());
  EXPECT_THAT(result.errors, AllOf(StartsWith("qkv: "), HasSubstr(GetParam().message)));
  EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1);
}

INSTANTIATE_TEST_SUITE_P(
    PlanCommand, BadPlan,
    ::testing::Values(
        BadInput{
            "KvHeads", {"--kv-heads", "5"}, "plan: --kv-heads: expected a divisor of H=12, got 5"},
        BadInput{"Negative", {"--batch", "-1"}, "--batch: expected 0 or more, got -1"},
        BadInput{"NoCorner",
                 {"--tokens", "4", "--keys", "6", "--causal"},
                 "plan: --causal: expected a corner for the diagonal"},
        BadInput{"WrongCorner",
                 {"--causal=middle"},
                 "plan: --causal: expected a corner, top-left or bottom-right, got \"middle\""},
        BadInput{"Window", {"--window", "x"}, "plan: --window: expected N or N,CORNER"},
        BadInput{"LongLengths",
                 {"--lengths", "900"},
                 "engine::plan: mask: expected key lengths of at most S=512"},
        BadInput{"CrossDocuments",
                 {"--keys", "6", "--documents", "3"},
                 "plan: --documents: expected as many keys as queries, got T=512, S=6"},
        BadInput{"NoDocument", {"--documents", "0"}, "--documents: expected 1 or more, got 0"},
        BadInput{"Target", {"--target", "Z80"}, "engine::plan: target: expected one of"},
        BadInput{"Threads", {"--threads", "0"}, "--threads"},
        BadInput{"Sample", {"--sample", "1"}, "plan: --sample: expected an index below B=1, got 1"},
        BadInput{"Head", {"--head", "12"}, "plan: --head: expected an index below H=12, got 12"},
        BadInput{
            "TooLarge", {"--tokens", "9000000000"}, "plan: sizes: expected at most 1e+11 pairs"},
        BadInput{"BackwardOfStorage",
                 {"--backward", "--dtype", "float16"},
                 "plan: --backward: expected --dtype float32 or float64, got float16"},
        BadInput{"BackwardOfACache", {"--backward", "--cache"}, "--backward excludes --cache"},
        BadInput{
            "BackwardWithWeights", {"--backward", "--weights"}, "--weights excludes --backward"},
        BadInput{
            "CacheWindowWithoutACache", {"--cache-window", "5"}, "--cache-window requires --cache"},
        BadInput{"CacheOfTwoSizes",
                 {"--cache", "--keys", "600", "--lengths", "600"},
                 "plan: --keys: expected none beside --cache with --lengths, got 600"},
        BadInput{"CacheLengths",
                 {"--cache", "--lengths", "600,700"},
                 "plan: --lengths: expected one number, or one a sample of B=1, got 2 of them"},
        BadInput{"ShortCache",
                 {"--cache", "--keys", "100"},
                 "engine::plan(cache): query: expected at most the 100 tokens of sequence 0"},
        BadInput{"Dropout",
                 {"--dropout", "1"},
                 "engine::plan: dropout: expected a probability of at least 0 and below 1, got 1"},
        BadInput{"DType", {"--dtype", "int8"}, "--dtype"}),
    [](const auto& bad) { return bad.param.name; });

}  // namespace
}  // namespace qkv
