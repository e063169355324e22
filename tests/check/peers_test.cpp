// The processes and plugins behind peers: what happens where they are missing or fail. What they compute
// is tested through the command.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "check/peer_plugin.h"
#include "check/python_peer.h"
#include "check/subprocess.h"
#include "tests/check/stand_in_python.h"

namespace qkv {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A folder for temporary files, so that what is left behind shows.
class PeersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / ("qkv-peers-" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "temporary");
    ::setenv("TMPDIR", (folder_ / "temporary").c_str(), 1);
  }
  void TearDown() override {
    EXPECT_TRUE(fs::is_empty(folder_ / "temporary")) << "files were left behind";
    ::unsetenv("TMPDIR");
    fs::remove_all(folder_);
  }

  std::string program(const std::string& shell_lines) const {
    return stand_in_python(folder_ / "python", shell_lines);
  }

  template <class Error>
  static std::string message_of(const std::string& python) {
    try {
      make_python_peer(python)->run({}, [](std::size_t) {});
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  fs::path folder_;
};

TEST_F(PeersTest, MissingPythonIsAMissingPeer) {
  EXPECT_EQ(message_of<PeerMissing>("/nowhere/python"),
            "/nowhere/python: No such file or directory");
}

TEST_F(PeersTest, PythonWithoutPyTorchIsAMissingPeer) {
  const std::string python = program("echo \"No module named 'torch'\" >&2; exit 3");
  EXPECT_EQ(message_of<PeerMissing>(python), python + ": No module named 'torch'");
}

TEST_F(PeersTest, FailureShowsTheLastLineOfTheTraceback) {
  const std::string python = program(
      "printf 'Traceback (most recent call last):\\n  File\\nValueError: no\\n\\n' >&2; exit 1");
  EXPECT_EQ(message_of<std::runtime_error>(python),
            "align: " + python + " ended with code 1: ValueError: no");
  EXPECT_EQ(message_of<PeerMissing>(python + "-absent"),
            python + "-absent: No such file or directory");
}

TEST_F(PeersTest, ResultsThatWereNotWrittenAreAnError) {
  EXPECT_THAT(message_of<std::runtime_error>(program("exit 0")), HasSubstr("results.safetensors"));
}

TEST_F(PeersTest, DeathBySignalIsAnError) {
  EXPECT_THAT(message_of<std::runtime_error>(program("kill -9 $$")),
              HasSubstr("ended with code 137: no message"));
}

TEST_F(PeersTest, EnvironmentNamesThePython) {
  ::setenv("QKV_PYTHON", "/nowhere/else", 1);
  try {
    make_python_peer(std::nullopt)->run({}, [](std::size_t) {});
    ADD_FAILURE() << "no error";
  } catch (const PeerMissing& error) {
    EXPECT_THAT(error.what(), HasSubstr("/nowhere/else"));
  }
  ::unsetenv("QKV_PYTHON");
}

TEST_F(PeersTest, ProcessOutputComesLineByLine) {
  std::vector<std::string> lines;
  const std::string errors = (folder_ / "errors").string();
  const int code = run_process({{"/bin/sh", "-c", "echo a; echo b; printf c; exit 7"}, errors},
                               [&](const std::string& line) { lines.push_back(line); });
  EXPECT_EQ(code, 7);
  EXPECT_THAT(lines, ElementsAre("a", "b", "c"));
}

TEST_F(PeersTest, ChildIsInterruptedAndTheCallerGoesOn) {
  const int code = run_process({{"/bin/sh", "-c", "kill -INT $$"}, (folder_ / "errors").string()},
                               [](const std::string&) {});
  EXPECT_EQ(code, 128 + 2);
}

TEST(PeerPlugin, IsLookedForBesideTheExecutable) {
  // The tests lie in folders of their own, away from the command and its plugins.
  try {
    load_torch_peer();
    FAIL() << "no error";
  } catch (const PeerMissing& error) {
    EXPECT_THAT(error.what(), HasSubstr("libqkv_peer_torch.so: not beside the command"));
  }
}

}  // namespace
}  // namespace qkv
