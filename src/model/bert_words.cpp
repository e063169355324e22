#include "model/bert_words.h"

#include <unicode/locid.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "model/utf8.h"

namespace qkv {
namespace {

constexpr char32_t kReplacement = 0xFFFD;
/// Of Unicode, whose categories and decompositions the reference has.
constexpr int kCategoryVersion = 8;
constexpr int kDecompositionVersion = 12;

/// The characters that were in another category in Unicode 8 than they are today, of those that matter.
constexpr std::array<std::pair<char32_t, UCharCategory>, 6> kFormerCategories{{
    {0x166D, U_OTHER_PUNCTUATION},
    {0x1734, U_NON_SPACING_MARK},
    {0x1885, U_OTHER_LETTER},
    {0x1886, U_OTHER_LETTER},
    {0xA9BD, U_COMBINING_SPACING_MARK},
    {0x111C9, U_OTHER_PUNCTUATION},
}};

/// The version of Unicode that brought a character.
int age(char32_t code) {
  UVersionInfo version{};
  u_charAge(static_cast<UChar32>(code), version);
  return version[0];
}

/// The general category in Unicode 8.
int category(char32_t code) {
  for (const auto& [former, value] : kFormerCategories) {
    if (code == former) return value;
  }
  if (age(code) > kCategoryVersion) return U_UNASSIGNED;
  return u_charType(static_cast<UChar32>(code));
}

bool is_white_space(char32_t code) { return u_isUWhiteSpace(static_cast<UChar32>(code)) != 0; }

bool is_removed(char32_t code) {
  if (code == '\t' || code == '\n' || code == '\r') return false;
  if (code == 0 || code == kReplacement) return true;
  constexpr std::uint32_t kOther = U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK | U_GC_CS_MASK;
  return (U_MASK(category(code)) & kOther) != 0;
}

bool is_ascii_punctuation(char32_t code) {
  return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') ||
         (code >= '[' && code <= '`') || (code >= '{' && code <= '~');
}

bool is_punctuation(char32_t code) {
  return is_ascii_punctuation(code) || (U_MASK(category(code)) & U_GC_P_MASK) != 0;
}

/// Blocks of ideographs. That 2B820 to 2B91F are not among them is the reference's.
bool is_chinese(char32_t code) {
  constexpr std::array<std::pair<char32_t, char32_t>, 8> kBlocks{{{0x4E00, 0x9FFF},
                                                                  {0x3400, 0x4DBF},
                                                                  {0x20000, 0x2A6DF},
                                                                  {0x2A700, 0x2B73F},
                                                                  {0x2B740, 0x2B81F},
                                                                  {0x2B920, 0x2CEAF},
                                                                  {0xF900, 0xFAFF},
                                                                  {0x2F800, 0x2FA1F}}};
  return std::any_of(kBlocks.begin(), kBlocks.end(), [code](const auto& block) {
    return code >= block.first && code <= block.second;
  });
}

/// Cleaned: white space is blanks, and ideographs stand between two.
BertWord read(std::string_view text, std::size_t begin, std::size_t end,
              const BertTextOptions& options) {
  BertWord characters;
  std::size_t at = begin;
  while (at < end) {
    const std::size_t first = at;
    const char32_t code = next_code_point(text.substr(0, end), at).value_or(kReplacement);
    if (is_removed(code)) continue;
    const bool chinese = options.space_chinese && is_chinese(code);
    if (chinese) characters.push_back({' ', first, at});
    characters.push_back({is_white_space(code) ? U' ' : code, first, at});
    if (chinese) characters.push_back({' ', first, at});
  }
  return characters;
}

void append(const icu::UnicodeString& text, const BertCharacter& source, BertWord& target) {
  for (std::int32_t i = 0; i < text.length(); i = text.moveIndex32(i, 1)) {
    target.push_back({static_cast<char32_t>(text.char32At(i)), source.begin, source.end});
  }
}

const icu::Normalizer2& decomposition() {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* normalizer = icu::Normalizer2::getNFDInstance(error);
  if (U_FAILURE(error) != 0) throw std::runtime_error("ICU: its normalization data is missing");
  return *normalizer;
}

/// Canonically decomposed, without nonspacing marks.
BertWord without_accents(const BertWord& characters) {
  static const icu::Normalizer2& normalizer = decomposition();
  BertWord decomposed;
  for (const BertCharacter& character : characters) {
    icu::UnicodeString parts;
    if (age(character.code) <= kDecompositionVersion &&
        normalizer.getDecomposition(static_cast<UChar32>(character.code), parts) != 0) {
      append(parts, character, decomposed);
    } else {
      decomposed.push_back(character);
    }
  }
  const auto combining = [](const BertCharacter& character) {
    return u_getCombiningClass(static_cast<UChar32>(character.code));
  };
  for (auto first = decomposed.begin(); first != decomposed.end();) {
    const auto last = std::find_if(first, decomposed.end(),
                                   [&](const BertCharacter& c) { return combining(c) == 0; });
    std::stable_sort(first, last, [&](const BertCharacter& a, const BertCharacter& b) {
      return combining(a) < combining(b);
    });
    first = last == decomposed.end() ? last : std::next(last);
  }
  std::erase_if(decomposed, [](const BertCharacter& character) {
    return category(character.code) == U_NON_SPACING_MARK;
  });
  return decomposed;
}

/// Each character by itself: a final sigma is like any other.
BertWord lowered(const BertWord& characters) {
  BertWord result;
  for (const BertCharacter& character : characters) {
    icu::UnicodeString text(static_cast<UChar32>(character.code));
    append(text.toLower(icu::Locale::getRoot()), character, result);
  }
  return result;
}

}  // namespace

std::vector<BertWord> bert_words(std::string_view text, std::size_t begin, std::size_t end,
                                 const BertTextOptions& options) {
  BertWord characters = read(text, begin, end, options);
  if (options.strip_accents.value_or(options.lower_case)) characters = without_accents(characters);
  if (options.lower_case) characters = lowered(characters);
  std::vector<BertWord> words;
  bool inside = false;
  for (const BertCharacter& character : characters) {
    const bool alone = is_punctuation(character.code);
    if (is_white_space(character.code)) {
      inside = false;
      continue;
    }
    if (!inside || alone) words.emplace_back();
    words.back().push_back(character);
    inside = !alone;
  }
  return words;
}

}  // namespace qkv
