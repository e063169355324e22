// FlexAttention's process: what happens where it is missing, fails or ends. What it computes is tested in tests/bench.
#include "check/flex_attention.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "check/subprocess.h"

namespace qkv {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kPrepares =
    R"(read line; echo '{"version": "1", "forms": ["one", "two"]}'; )";

class FlexAttentionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / ("qkv-flex-test-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// A program that stands for Python.
  std::string program(const std::string& shell_lines) {
    const fs::path path = folder_ / "python";
    std::ofstream(path) << "#!/bin/sh\n" << shell_lines << "\n";
    fs::permissions(path, fs::perms::owner_all);
    return path.string();
  }

  static PeerCall call() {
    PeerCall call;
    call.function = peer_function::attention;
    call.rule = {PositionRule::Kind::Window, 2};
    const Tensor<float, 4> tensor({1, 1, 3, 2});
    for (const char* name : {"query", "key", "value"}) {
      call.inputs.tensors[name] = store(tensor.view());
    }
    return call;
  }

  /// Of preparing a call and running its first form.
  template <class Error>
  static std::string message_of(const std::string& python) {
    try {
      const auto peer = make_flex_attention_peer({.program = python});
      peer->prepare(call(), 1).front()->run();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  fs::path folder_;
};

TEST_F(FlexAttentionTest, MissingPythonIsAMissingPeer) {
  EXPECT_EQ(message_of<PeerMissing>("/nowhere/python"),
            "/nowhere/python: No such file or directory");
}

TEST_F(FlexAttentionTest, MissingPackageIsAMissingPeer) {
  const std::string python =
      program(R"(read line; echo '{"missing": "No module named torch"}'; exit 3)");
  EXPECT_EQ(message_of<PeerMissing>(python), python + ": No module named torch");
}

TEST_F(FlexAttentionTest, FailedRunSaysWhatPythonSaid) {
  const std::string python = program(
      std::string(kPrepares) + R"(read line; echo '{"error": "no C++ compiler"}'; read line)");
  EXPECT_EQ(message_of<std::runtime_error>(python), python + ": no C++ compiler");
}

TEST_F(FlexAttentionTest, EndIsAnErrorAndTheNextCallStartsAnother) {
  const std::string python = program(kPrepares);
  const auto peer = make_flex_attention_peer({.program = python});
  for (int i = 0; i < 2; ++i) {
    const auto forms = peer->prepare(call(), 1);
    ASSERT_EQ(forms.size(), 2U);
    EXPECT_EQ(forms[1]->form(), "two");
    try {
      forms[0]->run();
      ADD_FAILURE() << "no error";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), python + ": ended without an answer");
    }
    EXPECT_THROW(peer->prepare(call(), 1), std::runtime_error);
  }
}

TEST_F(FlexAttentionTest, AnswerThatIsNoJsonIsShown) {
  EXPECT_THAT(message_of<std::runtime_error>(program("read line; echo hello; read line")),
              HasSubstr("python: expected JSON, got \"hello\""));
}

TEST_F(FlexAttentionTest, SecondsAreThoseOfTheProcess) {
  const auto peer = make_flex_attention_peer(
      {.program =
           program(std::string(kPrepares) +
                   R"(read line; echo '{"seconds": 0.25, "extra_bytes": 4096}'; read line)")});
  const auto forms = peer->prepare(call(), 1);
  forms[1]->run();
  const auto measured = forms[1]->measured_elsewhere();
  ASSERT_TRUE(measured);
  EXPECT_EQ(measured->seconds, 0.25);
  EXPECT_EQ(measured->extra_memory, 4096U);
}

TEST_F(FlexAttentionTest, TakesRulesAlone) {
  const auto peer = make_flex_attention_peer({.program = "/nowhere/python"});
  PeerCall other = call();
  other.rule.reset();
  try {
    peer->prepare(other, 1);
    ADD_FAILURE() << "no error";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), StartsWith("flex_attention: call: expected attention with a rule"));
  }
}

TEST_F(FlexAttentionTest, ProcessAnswersLineByLine) {
  AnsweringProcess process(
      {{"/bin/sh", "-c", "while read a; do echo \"<$a>\"; done"}, "/dev/null"});
  EXPECT_EQ(process.ask("one"), "<one>");
  EXPECT_EQ(process.ask("two three"), "<two three>");
}

TEST_F(FlexAttentionTest, ProcessThatHasEndedAnswersNothing) {
  AnsweringProcess process({{"/bin/sh", "-c", "read a; exit 0"}, "/dev/null"});
  EXPECT_EQ(process.ask("one"), std::nullopt);
  EXPECT_EQ(process.ask("two"), std::nullopt);
}

}  // namespace
}  // namespace qkv
