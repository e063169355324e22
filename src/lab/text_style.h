// How traces look in a terminal: numbers for a reader, colours where they are wanted, columns that
// line up.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/tensor.h"

namespace qkv::lab {

struct TextStyle {
  bool color = false;
  std::size_t width = 100;  ///< columns
};

std::string bold(const TextStyle& style, std::string_view text);
std::string dim(const TextStyle& style, std::string_view text);
std::string good(const TextStyle& style, std::string_view text);
std::string bad(const TextStyle& style, std::string_view text);

/// Four significant digits: "0.7071", "-2", "1.2e-07", "-∞", "NaN".
std::string short_number(double value);
/// "[0.7071, 0, -2]"; entries past `most` become "…, last".
std::string short_vector(const std::vector<double>& values, std::size_t most = 4);
/// "307,200".
std::string grouped_number(Index value);

/// Terminal columns of a UTF-8 text: two for East Asian wide characters, none for combining marks.
std::size_t display_width(std::string_view text);
/// Padded with blanks on the right (or left) to a width.
std::string pad_right(std::string text, std::size_t width);
std::string pad_left(const std::string& text, std::size_t width);
/// At most `width` columns, the last of them "…" where something was cut.
std::string clip(std::string_view text, std::size_t width);
/// Lines of at most `width` columns, broken at blanks.
std::vector<std::string> wrap(std::string_view text, std::size_t width);

/// A text of unknown origin: valid UTF-8 without control characters, "?" in their place.
std::string printable(std::string_view text);
/// A token as a reader wants it: printable, without the marks that tokenizers put for a blank
/// before a word.
std::string token_label(std::string_view token);

/// Columns as wide as their widest cell, two blanks apart.
class TextTable {
 public:
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  /// Lines with `indent` blanks in front.
  std::vector<std::string> lines(std::size_t indent) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace qkv::lab
