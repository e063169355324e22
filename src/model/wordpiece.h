// BERT's tokenizer: words, and pieces of words that a vocabulary has. Sources: Schuster and Nakajima, "Japanese and Korean Voice
// Search" (2012); Wu et al., "Google's Neural Machine Translation System" (2016); the tokenizers library of Hugging Face, whose
// tokens these are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/bert_words.h"
#include "qkv/tensor.h"

namespace qkv {

struct WordPieceOptions {
  BertTextOptions text;
  std::string unknown = "[UNK]";
  std::string first = "[CLS]";
  std::string last = "[SEP]";
  std::string padding = "[PAD]";
  std::string mask = "[MASK]";
  /// Besides those above: what stands for itself wherever a text has it.
  std::vector<std::string> special = {};
  std::string prefix = "##";  ///< of a piece that continues a word
  Index longest_word = 100;   ///< code points; longer ones are unknown
};

struct TextToken {
  Index id = 0;
  std::string text;  ///< as the vocabulary has it: "##ing"
  std::size_t begin =
      0;  ///< bytes [begin, end) of the text that it came from; none for first and last
  std::size_t end = 0;
  bool special = false;  ///< first, last, or one that stands for itself
};

struct TokenizedText {
  std::vector<TextToken> tokens;  ///< first and last among them
  Index left_out = 0;             ///< tokens of the text that did not fit
};

class WordPiece {
 public:
  /// Without the special tokens that the options name a vocabulary is refused with std::invalid_argument.
  WordPiece(const std::vector<std::string>& vocabulary, WordPieceOptions options);

  /// At most `most` tokens, first and last among them; all where absent. Throws std::invalid_argument where `most` is below 2.
  TokenizedText tokenize(std::string_view text, std::optional<Index> most = std::nullopt) const;

  const WordPieceOptions& options() const noexcept { return options_; }
  Index size() const noexcept { return static_cast<Index>(ids_.size()); }
  Index padding() const noexcept { return padding_; }
  std::optional<Index> find(std::string_view token) const;

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const noexcept {
      return std::hash<std::string_view>()(text);
    }
  };
  struct Special {
    std::string text;
    Index id = 0;
  };

  Index require(const std::string& token) const;
  /// The longest special token that begins at a byte of the text; null where none does.
  const Special* special_at(std::string_view text, std::size_t at) const;
  void add_words(std::string_view text, std::size_t begin, std::size_t end,
                 std::vector<TextToken>& tokens) const;
  void add_pieces(const BertWord& word, std::vector<TextToken>& tokens) const;

  std::unordered_map<std::string, Index, Hash, std::equal_to<>> ids_;
  WordPieceOptions options_;
  std::vector<Special> special_;
  Index unknown_ = 0;
  Index first_ = 0;
  Index last_ = 0;
  Index padding_ = 0;
};

/// The tokenizer of a model's folder: the vocabulary of tokenizer.json, or else of vocab.txt, and what tokenizer_config.json says.
/// Throws FileError where a file is missing, malformed, or asks for what this tokenizer does not do.
WordPiece load_wordpiece(const std::string& folder);

}  // namespace qkv
