// Paths that are no readable files, and writes that fail.

#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>

#include "tests/io/support.h"

namespace qkv {
namespace {

using testing::expect_file_error;
using testing::expect_invalid_argument;
using testing::read_file;
using testing::write_file;

TensorFile one_tensor(Index size = 3) {
  const Tensor<float, 1> tensor({size});
  return {{{"w", store(tensor.view())}}, {}};
}

TEST(ReadTensors, RefusesWhatIsNoFile) {
  const TemporaryDirectory directory;
  const std::string missing = directory.file("missing.npy");
  expect_file_error([&] { read_tensors(missing); }, std::nullopt,
                    missing + ": cannot open: No such file or directory");
  expect_file_error([&] { read_tensors(directory.file("")); }, std::nullopt,
                    "expected a file, got a directory");
  expect_file_error([] { read_tensors(""); }, std::nullopt, "cannot open: No such file");
}

TEST(ReadTensors, DoesNotWaitForPipesAndDevices) {
  const TemporaryDirectory directory;
  const std::string pipe = directory.file("pipe.npy");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, std::string("/dev/zero"), std::string("/dev/null")}) {
    expect_file_error([&] { read_tensors(path); }, std::nullopt,
                      path + ": expected a regular file, got a pipe, socket or device");
  }
}

TEST(ReadTensors, TellsWhatAnUnknownFileBeginsWith) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("tensors");
  write_file(path, "");
  expect_file_error([&] { read_tensors(path); }, 0,
                    "expected a safetensors, .npz or .npy file, got an empty file");
  write_file(path, "hello\n");
  expect_file_error([&] { read_tensors(path); }, 0,
                    "expected a safetensors, .npz or .npy file, got one that begins with "
                    "\"hello\\x0a\"");
}

TEST(ReadTensors, GoesByContentNotByName) {
  const TemporaryDirectory directory;
  for (const char* const ending : {".safetensors", ".npz", ".npy"}) {
    const std::string written = directory.file(std::string("w") + ending);
    write_tensors(written, one_tensor());
    const std::string renamed = directory.file("w.dat");
    std::filesystem::rename(written, renamed);
    EXPECT_EQ(read_tensors(renamed).tensors.size(), 1U) << ending;
  }
  // A header of 0x04034b50 bytes: its length spells the magic of a zip archive.
  const std::string path = directory.file("length-of-a-zip.safetensors");
  write_file(path, std::string("PK\3\4\0\0\0\0{}", 10));
  expect_file_error([&] { read_tensors(path); }, 0,
                    "header length: expected at most the 2 bytes that follow, got 67324752");
}

TEST(WriteTensors, RefusesWhatTheFormatCannotHold) {
  const TemporaryDirectory directory;
  TensorFile file = one_tensor();
  expect_invalid_argument([&] { write_tensors("w.txt", file); },
                          "write_tensors: path: expected an ending .safetensors, .npz or .npy, got "
                          "\"w.txt\"");
  file.metadata["a"] = "b";
  expect_invalid_argument([&] { write_tensors(directory.file("w.npz"), file); },
                          "write_tensors: file: expected no metadata in .npz, got 1 entries; write "
                          ".safetensors");
  expect_invalid_argument([&] { write_tensors(directory.file("w.npy"), file); },
                          "write_tensors: file: expected no metadata in .npy, got 1 entries; write "
                          ".safetensors");
  file.metadata["a"] = "\xff";
  expect_invalid_argument([&] { write_tensors(directory.file("w.safetensors"), file); },
                          "write_tensors: file: expected names and metadata in UTF-8, got other "
                          "bytes");
  file.metadata.clear();
  file.tensors["../x"] = file.tensors["w"];
  expect_invalid_argument([&] { write_tensors(directory.file("w.npy"), file); },
                          "write_tensors: file: expected one tensor in .npy, got 2");
  expect_invalid_argument([&] { write_tensors(directory.file("w.npz"), file); },
                          "write_tensors: name: expected one that a member of an archive can have, "
                          "got \"../x\"");
  file.tensors.clear();
  file.tensors["__metadata__"] = one_tensor().at("w");
  expect_invalid_argument([&] { write_tensors(directory.file("w.safetensors"), file); },
                          "write_tensors: file: expected no tensor named as the metadata are, got "
                          "\"__metadata__\"");
  const Tensor<BFloat16, 1> narrow({2});
  file.tensors = {{"n", store(narrow.view())}};
  for (const char* const name : {"w.npy", "w.npz"}) {
    expect_invalid_argument([&] { write_tensors(directory.file(name), file); },
                            "write_tensors: \"n\": expected a dtype that NumPy has, got bfloat16; "
                            "write .safetensors");
  }
  EXPECT_THAT(directory.names(), ::testing::IsEmpty());
}

TEST(WriteTensors, NamesOfAnArchiveMustBeUtf8) {
  const TemporaryDirectory directory;
  TensorFile file;
  file.tensors["\xff"] = one_tensor().at("w");
  EXPECT_THROW(write_tensors(directory.file("w.npz"), file), std::invalid_argument);
  EXPECT_THAT(directory.names(), ::testing::IsEmpty());
}

TEST(WriteTensors, FailsWhereNoFileCanBe) {
  const TemporaryDirectory directory;
  write_file(directory.file("plain"), "x");
  for (const char* const name : {"w.safetensors", "w.npz", "w.npy"}) {
    for (const std::string& parent :
         {directory.file("missing"), directory.file("plain"), std::string("/proc")}) {
      const std::string path = parent + "/" + name;
      expect_file_error([&] { write_tensors(path, one_tensor()); }, std::nullopt,
                        path + ": cannot write: ");
    }
    std::filesystem::create_directory(directory.file(name));
    expect_file_error([&] { write_tensors(directory.file(name), one_tensor()); }, std::nullopt,
                      "expected a regular file, got a directory");
  }
  EXPECT_THAT(directory.names(),
              ::testing::UnorderedElementsAre("plain", "w.safetensors", "w.npz", "w.npy"));
}

/// While it lives no file can grow beyond `bytes`: what a full disk does, without a disk to fill.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    previous_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &previous_);
    const rlimit limit{bytes, previous_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &previous_);
    std::signal(SIGXFSZ, previous_handler_);
  }

 private:
  rlimit previous_{};
  void (*previous_handler_)(int) = nullptr;
};

TEST(WriteTensors, LeavesTheOldFileWhereTheNewOneDoesNotFit) {
  const TemporaryDirectory directory;
  for (const char* const name : {"w.safetensors", "w.npz", "w.npy"}) {
    const std::string path = directory.file(name);
    write_tensors(path, one_tensor());
    const std::string before = read_file(path);
    {
      const FileSizeLimit limit(10'000);
      expect_file_error([&] { write_tensors(path, one_tensor(100'000)); }, std::nullopt,
                        path + ": cannot write: ");
    }
    EXPECT_EQ(read_file(path), before);
  }
  EXPECT_THAT(directory.names(),
              ::testing::UnorderedElementsAre("w.safetensors", "w.npz", "w.npy"));
}

TEST(WriteTensors, MayReplaceTheFileThatItsTensorsLieIn) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("w.safetensors");
  TensorFile file = one_tensor(100'000);
  write_tensors(path, file);
  TensorFile mapped = read_tensors(path);
  mapped.metadata["generation"] = "2";
  write_tensors(path, mapped);
  EXPECT_EQ((mapped.at("w").to<float, 1>("w").shape(0)), 100'000);
  EXPECT_EQ(read_tensors(path).metadata.at("generation"), "2");
}

TEST(WriteTensors, NeverReplacesAPipeOrDevice) {
  const TemporaryDirectory directory;
  const std::string pipe = directory.file("pipe.npy");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::string link = directory.file("link.npy");
  std::filesystem::create_symlink("/dev/null", link);
  for (const std::string& path : {pipe, link}) {
    expect_file_error([&] { write_tensors(path, one_tensor()); }, std::nullopt,
                      path + ": expected a regular file, got a pipe, socket or device");
  }
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_THAT(directory.names(), ::testing::UnorderedElementsAre("pipe.npy", "link.npy"));
}

TEST(WriteTensors, FollowsALinkToAFile) {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory.file("elsewhere"));
  const std::string target = directory.file("elsewhere/w.npy");
  write_tensors(target, one_tensor(3));
  const std::string link = directory.file("link.npy");
  std::filesystem::create_symlink("elsewhere/w.npy", link);
  write_tensors(link, one_tensor(5));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(read_tensors(target).at("array").shape(), std::vector<Index>{5});
  EXPECT_THAT(directory.names(), ::testing::UnorderedElementsAre("elsewhere", "link.npy"));
}

TEST(WriteTensors, GivesOrdinaryPermissions) {
  const TemporaryDirectory directory;
  const mode_t mask = ::umask(022);
  for (const char* const name : {"w.safetensors", "w.npz", "w.npy"}) {
    write_tensors(directory.file(name), one_tensor());
    EXPECT_EQ(std::filesystem::status(directory.file(name)).permissions(),
              std::filesystem::perms(0644))
        << name;
  }
  ::umask(mask);
}

}  // namespace
}  // namespace qkv
