// The terminal: what is known of it, and a line that tells how far work is.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace qkv::cli {

/// `choice` is always, never or auto: colours where standard output is a terminal and NO_COLOR is
/// not set (https://no-color.org).
bool wants_color(const std::string& choice);

/// Columns of the terminal, within what is readable; 100 where output goes elsewhere.
std::size_t text_width();

/// One line on standard error, overwritten as work goes on; nothing where that is no terminal.
class ProgressLine {
 public:
  ProgressLine();
  void show(std::string_view text) const;
  void clear() const { show(""); }

 private:
  bool is_terminal_;
};

}  // namespace qkv::cli
