// Every input of the fuzz targets' corpus (tests/fuzz/make_corpus.py), read in this build. Files named
// ok-… are well-formed, those named bad-… are not.

#include <algorithm>

#include "io/safetensors.h"
#include "io/tensor_file.h"
#include "tests/fuzz/read_input.h"
#include "tests/io/support.h"

namespace qkv {
namespace {

using testing::accepts;
using testing::in_memory;
using testing::read_file;

std::vector<std::string> corpus_files(const std::string& format) {
  std::vector<std::string> paths;
  const std::string folder = std::string(QKV_SOURCE_DIR) + "/tests/fuzz/corpus/" + format;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

template <class Read>
void expect_as_named(const std::string& format, Read read) {
  int well_formed = 0;
  int malformed = 0;
  for (const std::string& path : corpus_files(format)) {
    SCOPED_TRACE(path);
    const bool accepted = accepts(read, in_memory(read_file(path)));
    const std::string name = std::filesystem::path(path).filename().string();
    const bool is_well_formed = name.starts_with("ok-");
    EXPECT_TRUE(is_well_formed || name.starts_with("bad-"));
    EXPECT_EQ(accepted, is_well_formed);
    ++(is_well_formed ? well_formed : malformed);
  }
  EXPECT_GT(well_formed, 0);
  EXPECT_GT(malformed, 0);
}

TEST(Corpus, Safetensors) { expect_as_named("safetensors", read_safetensors); }

TEST(Corpus, NpyAndNpz) {
  expect_as_named("npy", [](const FileBytes& file, const std::string& path) {
    return read_tensors(file, path);
  });
}

}  // namespace
}  // namespace qkv
