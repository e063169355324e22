#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace qkv {

/// A folder for temporary files that only we may read, gone with its content at the end.
class PrivateFolder {
 public:
  /// Its name begins with `name`. Throws std::system_error.
  explicit PrivateFolder(const std::string& name);
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  ~PrivateFolder();

  std::string file(std::string_view name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace qkv
