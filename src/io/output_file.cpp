#include "io/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

#include "qkv/error.h"

namespace qkv {
namespace {

[[noreturn]] void throw_write_error(const std::string& path, int code) {
  throw FileError(path, "cannot write: " + std::generic_category().message(code));
}

/// Where the whole file goes: renaming would put it in place of a device, pipe or link itself.
std::string destination_of(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code missing;  // what is not there is no obstacle
  const fs::file_status status = fs::status(path, missing);
  if (fs::is_other(status)) {
    throw FileError(path, "expected a regular file, got a pipe, socket or device");
  }
  if (fs::is_directory(status)) throw FileError(path, "expected a regular file, got a directory");
  const fs::path target = fs::canonical(path, missing);
  return missing ? path : target.string();
}

}  // namespace

OutputFile::OutputFile(const std::string& path) : path_(path), destination_(destination_of(path)) {
  const std::string directory = destination_.substr(0, destination_.rfind('/') + 1);
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
  if (std::rename(temporary_path_.c_str(), destination_.c_str()) != 0)
    throw_write_error(path_, errno);
  committed_ = true;
}

}  // namespace qkv
