#include "io/file_map.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <system_error>

#include "qkv/error.h"

namespace qkv {
namespace {

[[noreturn]] void throw_system_error(const std::string& path, const char* action, int code) {
  throw FileError(path,
                  fmt::format("cannot {}: {}", action, std::generic_category().message(code)));
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int number() const { return number_; }

 private:
  int number_;
};

}  // namespace

FileBytes map_file(const std::string& path) {
  // Without O_NONBLOCK, opening a pipe would wait for its writer.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.number() < 0) throw_system_error(path, "open", errno);
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) throw_system_error(path, "read its status", errno);
  if (S_ISDIR(status.st_mode)) throw FileError(path, "expected a file, got a directory");
  if (!S_ISREG(status.st_mode)) {
    throw FileError(path, "expected a regular file, got a pipe, socket or device");
  }
  if (status.st_size == 0) return {};
  const auto size = static_cast<std::size_t>(status.st_size);
  void* const start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number(), 0);
  if (start == MAP_FAILED) {
    if (errno == ENOMEM) throw std::bad_alloc();
    throw_system_error(path, "map into memory", errno);
  }
  const auto unmap = [size](const void* mapped) { ::munmap(const_cast<void*>(mapped), size); };
  return {{static_cast<const std::byte*>(start), size}, std::shared_ptr<const void>(start, unmap)};
}

}  // namespace qkv
