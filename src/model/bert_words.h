// A text as BERT reads it before its vocabulary comes into play: cleaned, lower case, without accents, in words.
// Source: Devlin et al., "BERT" (2019), its BasicTokenizer, as the tokenizers library of Hugging Face has it: control characters,
// punctuation and accents are those of Unicode 8.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

namespace qkv {

struct BertTextOptions {
  bool lower_case = true;
  bool space_chinese = true;                         ///< each ideograph is a word
  std::optional<bool> strip_accents = std::nullopt;  ///< as lower_case where absent
};

/// A code point, and the bytes of the text that it came from.
struct BertCharacter {
  char32_t code = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
};

using BertWord = std::vector<BertCharacter>;

/// The words of bytes [begin, end) of a text; punctuation is a word by itself. Bytes that are not UTF-8 are left out.
std::vector<BertWord> bert_words(std::string_view text, std::size_t begin, std::size_t end,
                                 const BertTextOptions& options);

}  // namespace qkv
