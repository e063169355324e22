#pragma once

#include <string_view>

namespace qkv {

/// The text of peers/flex_attention.py, so that an installed command has it.
extern const std::string_view flex_attention_script;

}  // namespace qkv
