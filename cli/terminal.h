// What is known of the terminal that standard output goes to.
#pragma once

#include <cstddef>
#include <string>

namespace qkv::cli {

/// `choice` is always, never or auto: colours where standard output is a terminal and NO_COLOR is
/// not set (https://no-color.org).
bool wants_color(const std::string& choice);

/// Columns of the terminal, within what is readable; 100 where output goes elsewhere.
std::size_t text_width();

}  // namespace qkv::cli
