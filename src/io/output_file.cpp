#include "io/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <random>
#include <system_error>
#include <utility>

#include "qkv/error.h"

namespace qkv {
namespace {

[[noreturn]] void throw_write_error(const std::string& path, int code) {
  throw FileError(path, "cannot write: " + std::generic_category().message(code));
}

}  // namespace

OutputFile::OutputFile(const std::string& path) : path_(path) {
  const std::string directory = path.substr(0, path.rfind('/') + 1);
  std::random_device random;
  do {
    temporary_path_ = fmt::format("{}.qkv-{:08x}{:08x}.tmp", directory, random(), random());
    descriptor_ = ::open(temporary_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (descriptor_ < 0 && errno == EEXIST);
  if (descriptor_ < 0) throw_write_error(path_, errno);
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!committed_) ::unlink(temporary_path_.c_str());
}

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno != EINTR) throw_write_error(path_, errno);
    if (count > 0) bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void OutputFile::commit() {
  // Network file systems report a full disk here.
  if (::close(std::exchange(descriptor_, -1)) != 0) throw_write_error(path_, errno);
  if (std::rename(temporary_path_.c_str(), path_.c_str()) != 0) throw_write_error(path_, errno);
  committed_ = true;
}

}  // namespace qkv
