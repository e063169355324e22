#pragma once

#include <optional>
#include <string>

namespace qkv {

/// The Python that runs peers: `program` where given; otherwise $QKV_PYTHON, else the virtual environment .venv beside the
/// folder of the running executable, else python3 on the PATH.
std::string find_python(const std::optional<std::string>& program);

}  // namespace qkv
