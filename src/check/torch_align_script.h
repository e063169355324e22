#pragma once

#include <string_view>

namespace qkv {

/// The text of peers/torch_align.py, so that an installed command has it.
extern const std::string_view torch_align_script;

}  // namespace qkv
