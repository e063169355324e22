#pragma once

#include <filesystem>

namespace qkv {

/// The folder of the running executable, links resolved; empty where the system does not tell.
std::filesystem::path executable_folder();

}  // namespace qkv
