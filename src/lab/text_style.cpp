#include "lab/text_style.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace qkv::lab {
namespace {

std::string wrapped_in(const TextStyle& style, std::string_view code, std::string_view text) {
  return style.color ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
}

struct CodePoint {
  char32_t value = 0;
  std::size_t bytes = 1;
  bool valid = false;
};

/// The first code point of a text that is not empty.
CodePoint decode(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t first = byte(0);
  if (first < 0x80) return {first, 1, true};
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC2 ? 2 : 0;
  if (length == 0 || first > 0xF4 || text.size() < length) return {};
  char32_t value = first & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return {};
    value = (value << 6U) | (byte(i) & 0x3FU);
  }
  const bool overlong = (length == 3 && value < 0x800) || (length == 4 && value < 0x10000);
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (overlong || surrogate || value > 0x10FFFF) return {};
  return {value, length, true};
}

bool is_control(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || (c >= 0x200B && c <= 0x200F) ||
         (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069) || c == 0xFEFF;
}

std::size_t columns_of(char32_t c) {
  if ((c >= 0x300 && c <= 0x36F) || (c >= 0x20D0 && c <= 0x20FF) || (c >= 0xFE00 && c <= 0xFE0F)) {
    return 0;
  }
  const bool wide = (c >= 0x1100 && c <= 0x115F) || (c >= 0x2E80 && c <= 0xA4CF) ||
                    (c >= 0xAC00 && c <= 0xD7A3) || (c >= 0xF900 && c <= 0xFAFF) ||
                    (c >= 0xFE30 && c <= 0xFE6F) || (c >= 0xFF00 && c <= 0xFF60) ||
                    (c >= 0xFFE0 && c <= 0xFFE6) || (c >= 0x1F300 && c <= 0x1F64F) ||
                    (c >= 0x1F900 && c <= 0x1F9FF) || (c >= 0x20000 && c <= 0x3FFFD);
  return wide ? 2 : 1;
}

}  // namespace

std::string bold(const TextStyle& style, std::string_view text) {
  return wrapped_in(style, "1", text);
}
std::string dim(const TextStyle& style, std::string_view text) {
  return wrapped_in(style, "2", text);
}
std::string good(const TextStyle& style, std::string_view text) {
  return wrapped_in(style, "32", text);
}
std::string bad(const TextStyle& style, std::string_view text) {
  return wrapped_in(style, "1;31", text);
}

std::string short_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "∞" : "-∞";
  if (value == 0) return "0";  // and not -0
  return fmt::format("{:.4g}", value);
}

std::string short_vector(const std::vector<double>& values, std::size_t most) {
  std::string text = "[";
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) text += ", ";
    if (values.size() > most && i + 1 == most) {
      text += "…, ";
      i = values.size() - 1;
    }
    text += short_number(values[i]);
  }
  return text + "]";
}

std::string grouped_number(Index value) {
  std::string digits = fmt::format("{}", value);
  for (std::size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  while (!text.empty()) {
    const CodePoint c = decode(text);
    width += c.valid ? columns_of(c.value) : 1;
    text.remove_prefix(c.bytes);
  }
  return width;
}

std::string pad_right(std::string text, std::size_t width) {
  const std::size_t used = display_width(text);
  if (used < width) text.append(width - used, ' ');
  return text;
}

std::string pad_left(const std::string& text, std::size_t width) {
  const std::size_t used = display_width(text);
  return used < width ? std::string(width - used, ' ') + text : text;
}

std::string clip(std::string_view text, std::size_t width) {
  if (display_width(text) <= width) return std::string(text);
  if (width == 0) return "";
  std::string result;
  std::size_t used = 0;
  while (!text.empty()) {
    const CodePoint c = decode(text);
    const std::size_t columns = c.valid ? columns_of(c.value) : 1;
    if (used + columns > width - 1) break;
    result += text.substr(0, c.bytes);
    used += columns;
    text.remove_prefix(c.bytes);
  }
  return result + "…";
}

std::vector<std::string> wrap(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  std::string line;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    if (!line.empty() && display_width(line) + 1 + display_width(word) > width) {
      lines.push_back(std::move(line));
      line.clear();
    }
    if (!line.empty()) line += ' ';
    line += word;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (!line.empty()) lines.push_back(std::move(line));
  return lines;
}

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const CodePoint c = decode(text);
    if (!c.valid || is_control(c.value)) {
      result += '?';
    } else {
      result += text.substr(0, c.bytes);
    }
    text.remove_prefix(c.bytes);
  }
  return result;
}

std::string token_label(std::string_view token) {
  // "Ġ" in byte-level vocabularies (GPT-2), "▁" in SentencePiece.
  for (const std::string_view mark : {"Ġ", "▁"}) {
    if (token.starts_with(mark) && token.size() > mark.size()) token.remove_prefix(mark.size());
  }
  return printable(token);
}

std::vector<std::string> TextTable::lines(std::size_t indent) const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], display_width(row[i]));
    }
  }
  std::vector<std::string> result;
  for (const auto& row : rows_) {
    std::string line(indent, ' ');
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line += "  ";
      line += i + 1 < row.size() ? pad_right(row[i], widths[i]) : row[i];
    }
    result.push_back(std::move(line));
  }
  return result;
}

}  // namespace qkv::lab
