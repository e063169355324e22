// The catalogue of bugs in words, out of docs/bugs.md and its Chinese translation: a section a class, "## M2 · Title", with
// "### Looks like", "### Why it happens", "### How to see it" and "### Fix" in this order.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qkv {

enum class BugLanguage : std::uint8_t { English, Chinese };

struct BugText {
  std::string id;     ///< "M2"
  std::string title;  ///< "padding on the query axis"
  std::string text;   ///< everything below the heading, Markdown
  std::string fix;    ///< what stands under its last heading

  /// The first sentences of the fix, without what follows them: code, lists.
  std::string short_fix() const;
};

/// The sections of a document in its order.
std::vector<BugText> parse_bug_texts(std::string_view document);
/// Those that the library carries.
const std::vector<BugText>& bug_texts(BugLanguage language = BugLanguage::English);
/// Nothing where the id is unknown; capitals do not matter.
const BugText* find_bug_text(std::string_view id, BugLanguage language = BugLanguage::English);

}  // namespace qkv
