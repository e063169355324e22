#include "lab/page.h"

#include "lab/page_parts.h"

namespace qkv::lab {

std::string page(std::string_view results) {
  std::string html;
  for (const std::string_view part : page_before_results()) html += part;
  // In JSON "<" stands in strings only. Escaped, none of them can end the script element.
  for (const char c : results) {
    if (c == '<') {
      html += "\\u003c";
    } else {
      html += c;
    }
  }
  for (const std::string_view part : page_after_results()) html += part;
  return html;
}

}  // namespace qkv::lab
