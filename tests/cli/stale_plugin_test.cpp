// `qkv align` beside a plugin of another build. Not under the sanitizers: they forbid the isolation that plugins are loaded with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "check/subprocess.h"
#include "tests/temporary_directory.h"

namespace qkv {
namespace {

using ::testing::HasSubstr;

// As after an update that left the plugin behind.
TEST(Align, DoesNotCallThePluginOfAnotherBuild) {
  const TemporaryDirectory folder;
  std::filesystem::copy_file(QKV_COMMAND, folder.file("qkv"));
  std::filesystem::copy_file(QKV_STALE_PEER, folder.file("libqkv_peer_torch.so"));
  ProcessRequest request{{folder.file("qkv"), "align", "--require-peers"}, folder.file("errors")};
  std::string output;
  run_process(request, [&](const std::string& line) { output += line + "\n"; });
  std::ifstream errors(folder.file("errors"));
  output.append(std::istreambuf_iterator<char>(errors), {});
  EXPECT_THAT(output, HasSubstr("libqkv_peer_torch.so: built for another version of qkv"));
}

}  // namespace
}  // namespace qkv
