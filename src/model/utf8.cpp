#include "model/utf8.h"

#include <unicode/unistr.h>
#include <unicode/utf8.h>

#include <cstdint>

namespace qkv {

std::optional<char32_t> next_code_point(std::string_view text, std::size_t& at) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(text.data());
  UChar32 code = 0;
  U8_NEXT(bytes, at, text.size(), code);
  if (code < 0) return std::nullopt;
  return static_cast<char32_t>(code);
}

bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    if (!next_code_point(text, at)) return false;
  }
  return true;
}

std::string shortened(std::string_view text, std::size_t code_points) {
  std::size_t at = 0;
  for (std::size_t i = 0; i < code_points && at < text.size(); ++i) next_code_point(text, at);
  std::string result(text.substr(0, at));
  if (at < text.size()) result += "…";
  return result;
}

void append_utf8(char32_t code, std::string& text) {
  icu::UnicodeString(static_cast<UChar32>(code)).toUTF8String(text);
}

}  // namespace qkv
