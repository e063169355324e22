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

PageFolder::PageFolder(std::string_view operation, std::string path) : path_(std::move(path)) {
  if (path_.empty()) {
    throw std::invalid_argument(fmt::format("{}: --out: expected a folder, got \"\"", operation));
  }
  std::error_code problem;
  std::filesystem::create_directories(path_, problem);
  if (problem) throw FileError(path_, "cannot make the folder: " + problem.message());
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
