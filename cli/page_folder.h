// A folder for a page (index.html) and its numbers (results.json).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace qkv::cli {

/// Makes a folder with those around it that are missing, and removes the ones that it made where they are empty at its end.
class NewFolders {
 public:
  /// Throws FileError.
  explicit NewFolders(const std::string& path);
  NewFolders(const NewFolders&) = delete;
  NewFolders& operator=(const NewFolders&) = delete;
  ~NewFolders();

 private:
  std::vector<std::filesystem::path> made_;  ///< the innermost first
};

class PageFolder {
 public:
  /// Makes the folder where it is missing, and tries whether files can be made in it; none of them stays, nor do folders that were
  /// made where nothing is written. Throws
  /// std::invalid_argument where the path is empty, FileError where it cannot be written to. `operation` begins messages.
  PageFolder(std::string_view operation, std::string path);

  std::string page() const { return path_ + "/index.html"; }
  std::string results() const { return path_ + "/results.json"; }
  const std::string& path() const { return path_; }

  /// `results` is what lab::experiments_json gives. Both files are written whole before one of them takes its name.
  void write(const std::string& results) const;

 private:
  std::string path_;
  NewFolders folders_;
};

}  // namespace qkv::cli
