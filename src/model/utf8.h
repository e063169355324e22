// Code points of UTF-8.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace qkv {

/// The code point that begins at a byte of the text, which moves on to the next one; nothing where the bytes are not UTF-8.
std::optional<char32_t> next_code_point(std::string_view text, std::size_t& at);

bool is_utf8(std::string_view text);

/// Its first code points, with "…" for the rest.
std::string shortened(std::string_view text, std::size_t code_points);

void append_utf8(char32_t code, std::string& text);

}  // namespace qkv
