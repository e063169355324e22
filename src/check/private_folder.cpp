#include "check/private_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <system_error>

namespace qkv {

namespace fs = std::filesystem;

PrivateFolder::PrivateFolder(const std::string& name) {
  std::string path = (fs::temp_directory_path() / (name + "-XXXXXX")).string();
  if (::mkdtemp(path.data()) == nullptr) {
    throw std::system_error(errno, std::generic_category(), path);
  }
  path_ = path;
}

PrivateFolder::~PrivateFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace qkv
