#include "check/bug_text.h"

#include <algorithm>
#include <cctype>

#include "check/bug_documents.h"

namespace qkv {
namespace {

constexpr std::string_view kSection = "## ";
constexpr std::string_view kPart = "### ";
constexpr std::string_view kSeparator = " · ";

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == '\n' || text.front() == ' ')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  return text;
}

/// Takes the next line off `text`.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

bool same_id(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::toupper(static_cast<unsigned char>(x)) ==
           std::toupper(static_cast<unsigned char>(y));
  });
}

void finish(BugText& bug) {
  const std::size_t last = bug.text.rfind("\n" + std::string(kPart));
  std::string_view fix = bug.text;
  if (last != std::string::npos) {
    fix.remove_prefix(last + 1);
    take_line(fix);
  }
  bug.fix = trimmed(fix);
  bug.text = trimmed(bug.text);
}

}  // namespace

std::string BugText::short_fix() const {
  std::string result;
  std::string_view left = fix;
  while (!left.empty()) {
    const std::string_view line = take_line(left);
    const bool is_prose = !line.empty() && !line.starts_with("```") && !line.starts_with("- ") &&
                          !line.starts_with("|") && !line.starts_with("    ");
    if (!is_prose) break;
    if (!result.empty()) result += ' ';
    result += line;
  }
  return result;
}

std::vector<BugText> parse_bug_texts(std::string_view document) {
  std::vector<BugText> bugs;
  bool inside = false;  // of a section that describes a bug
  while (!document.empty()) {
    const std::string_view line = take_line(document);
    if (line.starts_with(kSection)) {
      const std::size_t separator = line.find(kSeparator);
      inside = separator != std::string_view::npos;
      if (!bugs.empty() && inside) finish(bugs.back());
      if (!inside) continue;
      bugs.push_back({std::string(line.substr(kSection.size(), separator - kSection.size())),
                      std::string(line.substr(separator + kSeparator.size())),
                      {},
                      {}});
    } else if (inside) {
      bugs.back().text += line;
      bugs.back().text += '\n';
    }
  }
  if (!bugs.empty()) finish(bugs.back());
  return bugs;
}

const std::vector<BugText>& bug_texts(BugLanguage language) {
  static const std::vector<BugText> english = parse_bug_texts(bugs_document());
  static const std::vector<BugText> chinese = parse_bug_texts(bugs_document_chinese());
  return language == BugLanguage::Chinese ? chinese : english;
}

const BugText* find_bug_text(std::string_view id, BugLanguage language) {
  const auto& bugs = bug_texts(language);
  const auto found = std::find_if(bugs.begin(), bugs.end(),
                                  [&](const BugText& bug) { return same_id(bug.id, id); });
  return found == bugs.end() ? nullptr : &*found;
}

}  // namespace qkv
