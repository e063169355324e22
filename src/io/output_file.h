// A file that appears whole or not at all.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace qkv {

/// A temporary file in the directory of `path`, renamed to `path` by commit() and removed where that is
/// never reached. A symbolic link to a file is followed; a directory, pipe, socket or device is refused. Everything throws
/// FileError that names `path`.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  void write(std::span<const std::byte> bytes);
  void commit();

  /// For a library that writes by name.
  const std::string& temporary_path() const { return temporary_path_; }

 private:
  std::string path_;
  std::string destination_;  // path_ with a link followed
  std::string temporary_path_;
  int descriptor_ = -1;
  bool committed_ = false;
};

}  // namespace qkv
