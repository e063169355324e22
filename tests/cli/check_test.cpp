// `qkv check` as a person runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "check/bug_text.h"
#include "check/hypotheses.h"
#include "qkv/io.h"
#include "tests/check/random_dump.h"
#include "tests/cli/run_command.h"
#include "tests/temporary_directory.h"

namespace qkv {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

template <class T, int Rank>
StoredTensor stored(const Tensor<double, Rank>& tensor) {
  const auto narrow = stored_as<T>(tensor.view());
  return store(narrow.view());
}

/// What docs/dump.md asks for.
template <class T>
TensorFile file_of(const Dump& dump) {
  TensorFile file;
  file.tensors = {{"q", stored<T>(dump.query)},
                  {"k", stored<T>(dump.key)},
                  {"v", stored<T>(dump.value)},
                  {"out", stored<T>(*dump.context)}};
  Tensor<Index, 1> lengths({dump.shape.batch});
  std::copy(dump.rules.lengths.begin(), dump.rules.lengths.end(), lengths.data());
  file.tensors.emplace("lengths", store(lengths.view()));
  file.metadata = {{"causal", "bottom-right"}, {"source", "a test"}};
  return file;
}

class CheckCommand : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const TensorFile& file) const {
    const std::string path = folder_.file(name);
    write_tensors(path, file);
    return path;
  }
  std::string right() const {
    return write("right.safetensors", file_of<float>(random_dump<float>()));
  }
  /// The scale is left out.
  std::string wrong() const {
    Dump dump = random_dump<float>();
    const double scale = dump.scale;
    dump.scale = 1;
    answer<float>(dump);
    dump.scale = scale;
    return write("wrong.safetensors", file_of<float>(dump));
  }

  TemporaryDirectory folder_;
};

TEST_F(CheckCommand, ARightDumpMatches) {
  const CommandResult result = run_command({"check", right()});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.errors, IsEmpty());
  EXPECT_THAT(result.output, AllOf(HasSubstr("right.safetensors: matches\n"),
                                   HasSubstr("B=2, H=4, Hkv=2, T=13, S=19, Dk=16, Dv=8, float32\n"),
                                   HasSubstr("causal (bottom-right)"), HasSubstr("source: a test"),
                                   HasSubstr("out     832 "), Not(HasSubstr("By hand"))));
}

TEST_F(CheckCommand, AWrongOneSaysWhereAndHowMuch) {
  const CommandResult result = run_command({"check", "--no-diagnosis", wrong()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.errors, IsEmpty());
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("wrong.safetensors: DIFFERS\n"), HasSubstr("\nWhere\n"),
                    HasSubstr("sample 1 head 3"), HasSubstr("By hand: out at sample"),
                    HasSubstr("score = 0.25 · q·k, weight = softmax"), HasSubstr("the dump has")));
}

TEST_F(CheckCommand, AndWhy) {
  const CommandResult result = run_command({"check", wrong()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output, AllOf(HasSubstr("\nWhy\n"), HasSubstr("S1 "), HasSubstr("\nFix\n"),
                                   HasSubstr("qkv check --about S1"),
                                   HasSubstr("What this dump could not have shown\n")));
}

TEST_F(CheckCommand, KnowsSomethingOfABugThatIsNotInTheCatalogue) {
  Dump dump = random_dump<float>();
  for (Index t = 0; t < 13; ++t) {
    for (Index d = 0; d < 8; ++d) (*dump.context)(1, 2, t, d) = 0;
  }
  const std::string file = write("zeros.safetensors", file_of<float>(dump));
  EXPECT_THAT(run_command({"check", file}).output,
              AllOf(HasSubstr("Not explained"), HasSubstr("  - heads 0–1, 3 are right\n"),
                    HasSubstr("  - every wrong row is 0\n")));
  const json report = json::parse(run_command({"check", "--json", file}).output);
  EXPECT_THAT(report["facts"], ::testing::Contains("13 of 104 rows are wrong"));
}

TEST_F(CheckCommand, SaysWhatIsNoBug) {
  TensorFile file = file_of<float>(random_dump<float>());
  Tensor<Index, 2> read({2, 13});
  std::fill(read.elements().begin(), read.elements().end(), Index{1});
  read(1, 12) = 0;
  file.tensors.emplace("read_rows", store(read.view()));
  auto out = file.at("out").to<float, 4>("out");
  out(1, 0, 12, 0) += 1;
  file.tensors["out"] = store(out.view());
  const std::string path = write("unread.safetensors", file);
  const CommandResult result = run_command({"check", path});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.output, HasSubstr("\nNot a bug\n  Of 4 rows that read_rows says nobody reads, "
                                       "1 differ from the oracle."));
  const json report = json::parse(run_command({"check", "--json", path}).output);
  ASSERT_EQ(report["remarks"].size(), 1U);
}

TEST_F(CheckCommand, GivesJson) {
  const CommandResult result = run_command({"check", "--json", wrong()});
  EXPECT_EQ(result.exit_code, 1);
  const json report = json::parse(result.output);
  EXPECT_EQ(report["verdict"], "differs");
  EXPECT_EQ(report["dtype"], "float32");
  EXPECT_GT(report["largest_error_units"], 1000);
  EXPECT_GT(report["rms_units"], 1000);
  ASSERT_EQ(report["tensors"].size(), 1U);
  const json& out = report["tensors"][0];
  EXPECT_EQ(out["name"], "out");
  EXPECT_EQ(out["compared"], 2 * 4 * 13 * 8);
  EXPECT_EQ(out["matches"], false);
  EXPECT_LT(out["allowed_units"], 100);
  EXPECT_EQ(report["where"]["heads"], (json{0, 1, 2, 3}));
  ASSERT_FALSE(report["diagnoses"].empty());
  const json& cause = report["diagnoses"][0];
  EXPECT_EQ(cause["id"], "S1");
  EXPECT_EQ(cause["ids"], json{"S1"});
  EXPECT_LT(cause["evidence"]["rms_units"], 3);
  EXPECT_TRUE(cause.contains("parameters") && cause.contains("aliases") && cause.contains("fix"));
  EXPECT_FALSE(report["not_shown"].empty());
  EXPECT_TRUE(report["inferred"].is_array() && report["rivals"].is_array());
}

TEST_F(CheckCommand, SeveralFilesGiveTheWorstExitCodeAndALineOfJsonEach) {
  const std::string broken = folder_.file("broken.safetensors");
  std::ofstream(broken) << "not a tensor";
  CommandResult result = run_command({"check", "--no-diagnosis", right(), wrong()});
  EXPECT_EQ(result.exit_code, 1);
  result = run_command({"check", "--no-diagnosis", "--json", right(), broken, wrong()});
  EXPECT_EQ(result.exit_code, 2);
  std::istringstream lines(result.output);
  std::vector<std::string> verdicts;
  for (std::string line; std::getline(lines, line);) {
    verdicts.push_back(json::parse(line)["verdict"]);
  }
  EXPECT_THAT(verdicts, ::testing::ElementsAre("matches", "bad input", "differs"));
  result = run_command({"check", "--no-diagnosis", broken, right()});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.errors, AllOf(StartsWith("qkv: "), HasSubstr("broken.safetensors")));
  EXPECT_THAT(result.output, HasSubstr("right.safetensors: matches"));
}

TEST_F(CheckCommand, ListsTheCatalogue) {
  const CommandResult text = run_command({"check", "--list"});
  EXPECT_EQ(text.exit_code, 0);
  const CommandResult list = run_command({"check", "--list", "--json"});
  const json classes = json::parse(list.output);
  EXPECT_EQ(classes.size(), 39U);
  for (const json& one : classes) {
    EXPECT_THAT(text.output, HasSubstr(std::string(one["id"]) + " "));
    EXPECT_THAT(std::string(one["title"]), Not(IsEmpty()));
    EXPECT_THAT(std::string(one["fix"]), Not(IsEmpty()));
  }
}

TEST_F(CheckCommand, ExplainsAClassInTwoLanguages) {
  const CommandResult english = run_command({"check", "--about", "m2"});
  EXPECT_EQ(english.exit_code, 0);
  EXPECT_THAT(english.output, AllOf(StartsWith("M2 · "), HasSubstr("### Looks like"),
                                    HasSubstr("### Why it happens"), HasSubstr("### How to see it"),
                                    HasSubstr("### Fix"), Not(HasSubstr("\n## "))));
  const CommandResult chinese = run_command({"check", "--about", "M2", "--lang", "zh"});
  EXPECT_EQ(chinese.exit_code, 0);
  EXPECT_THAT(chinese.output, StartsWith("M2 · "));
  EXPECT_NE(chinese.output, english.output);
}

struct BadInput {
  std::string name;
  std::vector<std::string> arguments;
  std::string message;
};

class BadCheck : public ::testing::TestWithParam<BadInput> {};

TEST_P(BadCheck, IsNamedOnStandardErrorWithExitCode2) {
  std::vector<std::string> arguments = {"check"};
  arguments.insert(arguments.end(), GetParam().arguments.begin(), GetParam().arguments.end());
  const CommandResult result = run_command(arguments);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.output, IsEmpty());
  EXPECT_THAT(result.errors, AllOf(StartsWith("qkv: "), HasSubstr(GetParam().message)));
  EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1);
}

INSTANTIATE_TEST_SUITE_P(
    CheckCommand, BadCheck,
    ::testing::Values(
        BadInput{"Nothing", {}, "check: input: expected a dump (.safetensors or .npz"},
        BadInput{"NoFile", {"/nowhere/dump.npz"}, "/nowhere/dump.npz"},
        BadInput{"NoDump", {"README.md"}, "README.md"},
        BadInput{
            "Class", {"--about", "Z9"}, "check: --about: expected a class of qkv check --list"},
        BadInput{"Language", {"--about", "M2", "--lang", "fr"}, "--lang"},
        BadInput{"Threads", {"--threads", "0", "x"}, "--threads"}),
    [](const auto& bad) { return bad.param.name; });

TEST_F(CheckCommand, AMalformedDumpIsNamedByItsTensor) {
  const auto expect = [&](const TensorFile& file, const std::string& tensor) {
    const std::string path = write("malformed.safetensors", file);
    const CommandResult result = run_command({"check", path});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.output, IsEmpty());
    EXPECT_THAT(result.errors, AllOf(StartsWith("qkv: "), HasSubstr("malformed.safetensors"),
                                     HasSubstr("dump: " + tensor), HasSubstr("expected")));
  };
  const TensorFile good = file_of<float>(random_dump<float>());
  TensorFile file = good;
  file.tensors.erase("k");
  expect(file, "k");
  file = good;
  file.tensors.erase("out");
  expect(file, "out");
  file = good;
  file.tensors.emplace("keys", file.at("k"));
  expect(file, "keys");
  file = good;
  file.metadata["causal"] = "sideways";
  expect(file, "causal");
}

TEST(BugText, TakesADocumentApart) {
  const auto bugs = parse_bug_texts(
      "# Title\n\nText.\n\n## Contents\n\n## M2 · the query axis\n\n### Looks like\n\nThis.\n\n"
      "### Fix\n\nTake `[B,1,1,S]`.\nIt is short.\n\n```\ncode\n```\n\n## S1 · none\n\n### "
      "Fix\n\nScale.\n");
  ASSERT_EQ(bugs.size(), 2U);
  EXPECT_EQ(bugs[0].id, "M2");
  EXPECT_EQ(bugs[0].title, "the query axis");
  EXPECT_THAT(bugs[0].text, StartsWith("### Looks like\n\nThis."));
  EXPECT_THAT(bugs[0].fix, StartsWith("Take `[B,1,1,S]`."));
  EXPECT_EQ(bugs[0].short_fix(), "Take `[B,1,1,S]`. It is short.");
  EXPECT_EQ(bugs[1].short_fix(), "Scale.");
}

TEST(BugText, HasEveryClassInBothLanguages) {
  for (const BugLanguage language : {BugLanguage::English, BugLanguage::Chinese}) {
    EXPECT_EQ(bug_texts(language).size(), catalogue_ids().size());
    for (const std::string& id : catalogue_ids()) {
      const BugText* bug = find_bug_text(id, language);
      ASSERT_NE(bug, nullptr) << id;
      EXPECT_THAT(bug->title, Not(IsEmpty())) << id;
      EXPECT_THAT(bug->short_fix(), Not(IsEmpty())) << id;
      int parts = 0;  // looks like, why it happens, how to see it, fix
      for (std::size_t at = bug->text.find("### "); at != std::string::npos;
           at = bug->text.find("\n### ", at + 1)) {
        ++parts;
      }
      EXPECT_EQ(parts, 4) << id;
    }
  }
}

}  // namespace
}  // namespace qkv
