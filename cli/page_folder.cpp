#include "cli/page_folder.h"

#include <fmt/format.h>

#include <filesystem>
#include <span>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "io/output_file.h"
#include "lab/page.h"
#include "qkv/error.h"

namespace qkv::cli {

NewFolders::NewFolders(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code problem;
  fs::path part = fs::absolute(path).lexically_normal();
  for (; part.has_relative_path() && !fs::exists(part, problem); part = part.parent_path()) {
    if (part.has_filename()) made_.push_back(part);
  }
  fs::create_directories(path, problem);
  if (problem) throw FileError(path, "cannot make the folder: " + problem.message());
}

NewFolders::~NewFolders() {
  std::error_code ignored;
  for (const std::filesystem::path& folder : made_) {
    if (!std::filesystem::remove(folder, ignored)) break;  // something is in it
  }
}

PageFolder::PageFolder(std::string_view operation, std::string path)
    : path_(path.empty() ? throw std::invalid_argument(
                               fmt::format("{}: --out: expected a folder, got \"\"", operation))
                         : std::move(path)),
      folders_(path_) {
  for (const std::string& file : {page(), results()}) {
    const OutputFile tried(file);
  }
}

void PageFolder::write(const std::string& results_text) const {
  const std::string page_text = lab::page(results_text);
  OutputFile page_file(page());
  OutputFile results_file(results());
  page_file.write(std::as_bytes(std::span(page_text)));
  results_file.write(std::as_bytes(std::span(results_text)));
  results_file.commit();
  page_file.commit();
}

}  // namespace qkv::cli
