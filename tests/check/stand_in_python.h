// A program that stands for Python.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace qkv {

/// Writes a program that runs these lines of the shell; returns its path.
inline std::string stand_in_python(const std::filesystem::path& path,
                                   const std::string& shell_lines) {
  std::ofstream(path) << "#!/bin/sh\n" << shell_lines << "\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path.string();
}

}  // namespace qkv
