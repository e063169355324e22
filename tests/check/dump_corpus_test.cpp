// Every input of the fuzz target's corpus (tests/fuzz/make_corpus.py): files named ok-… are dumps, those named bad-… are not.

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/fuzz/read_dump.h"

namespace qkv {
namespace {

TEST(DumpCorpus, IsAsNamed) {
  int dumps = 0;
  int others = 0;
  const std::string folder = std::string(QKV_SOURCE_DIR) + "/tests/fuzz/corpus/dump";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path());
    const bool is_dump = entry.path().filename().string().starts_with("ok-");
    EXPECT_EQ(testing::accepts_dump(map_file(entry.path().string())), is_dump);
    ++(is_dump ? dumps : others);
  }
  EXPECT_GT(dumps, 0);
  EXPECT_GT(others, 0);
}

}  // namespace
}  // namespace qkv
