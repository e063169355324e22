#include "check/python_program.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "check/executable_folder.h"

namespace qkv {

std::string find_python(const std::optional<std::string>& program) {
  if (program) return *program;
  if (const char* from_environment = std::getenv("QKV_PYTHON");
      from_environment != nullptr && *from_environment != '\0') {
    return from_environment;
  }
  const auto in_checkout = executable_folder().parent_path() / ".venv/bin/python";
  std::error_code ignored;
  return std::filesystem::exists(in_checkout, ignored) ? in_checkout.string() : "python3";
}

}  // namespace qkv
