#include "model/wordpiece.h"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "model/utf8.h"

namespace qkv {

WordPiece::WordPiece(const std::vector<std::string>& vocabulary, WordPieceOptions options)
    : options_(std::move(options)) {
  for (std::size_t i = 0; i < vocabulary.size(); ++i) {
    ids_.insert_or_assign(vocabulary[i], static_cast<Index>(i));
  }
  unknown_ = require(options_.unknown);
  first_ = require(options_.first);
  last_ = require(options_.last);
  padding_ = require(options_.padding);
  std::vector<std::string> special{options_.unknown, options_.first, options_.last,
                                   options_.padding, options_.mask};
  special.insert(special.end(), options_.special.begin(), options_.special.end());
  for (const std::string& text : special) special_.push_back({text, require(text)});
}

Index WordPiece::require(const std::string& token) const {
  const std::optional<Index> id = token.empty() ? std::nullopt : find(token);
  if (!id) {
    throw std::invalid_argument(
        fmt::format("WordPiece: vocabulary: expected the special token \"{}\", got none", token));
  }
  return *id;
}

std::optional<Index> WordPiece::find(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

const WordPiece::Special* WordPiece::special_at(std::string_view text, std::size_t at) const {
  const Special* longest = nullptr;
  for (const Special& special : special_) {
    const bool longer = longest == nullptr || special.text.size() > longest->text.size();
    if (longer && text.substr(at).starts_with(special.text)) longest = &special;
  }
  return longest;
}

void WordPiece::add_pieces(const BertWord& word, std::vector<TextToken>& tokens) const {
  const std::size_t before = tokens.size();
  const auto give_up = [&] {
    tokens.resize(before);
    tokens.push_back({unknown_, options_.unknown, word.front().begin, word.back().end});
  };
  if (static_cast<Index>(word.size()) > options_.longest_word) return give_up();
  for (std::size_t begin = 0; begin < word.size();) {
    std::string candidate = begin == 0 ? "" : options_.prefix;
    std::vector<std::size_t> lengths;  // in bytes, after each character
    for (std::size_t i = begin; i < word.size(); ++i) {
      append_utf8(word[i].code, candidate);
      lengths.push_back(candidate.size());
    }
    std::optional<Index> id;
    std::size_t count = lengths.size();
    for (; count > 0; --count) {
      id = find(std::string_view(candidate).substr(0, lengths[count - 1]));
      if (id) break;
    }
    if (!id) return give_up();
    tokens.push_back({*id, candidate.substr(0, lengths[count - 1]), word[begin].begin,
                      word[begin + count - 1].end});
    begin += count;
  }
}

void WordPiece::add_words(std::string_view text, std::size_t begin, std::size_t end,
                          std::vector<TextToken>& tokens) const {
  for (const BertWord& word : bert_words(text, begin, end, options_.text)) {
    add_pieces(word, tokens);
  }
}

TokenizedText WordPiece::tokenize(std::string_view text, std::optional<Index> most) const {
  constexpr Index kFrame = 2;  // first and last
  if (most && *most < kFrame) {
    throw std::invalid_argument(
        fmt::format("WordPiece::tokenize: most: expected {} or more, got {}", kFrame, *most));
  }
  TokenizedText result;
  std::vector<TextToken>& tokens = result.tokens;
  tokens.push_back({first_, options_.first, 0, 0, true});
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Special* special = special_at(text, at);
    if (special == nullptr) {
      ++at;
      continue;
    }
    add_words(text, begin, at, tokens);
    begin = at + special->text.size();
    tokens.push_back({special->id, special->text, at, begin, true});
    at = begin;
  }
  add_words(text, begin, text.size(), tokens);
  if (most) {
    const auto fits = static_cast<std::size_t>(*most - 1);
    if (tokens.size() > fits) {
      result.left_out = static_cast<Index>(tokens.size() - fits);
      tokens.resize(fits);
    }
  }
  tokens.push_back({last_, options_.last, 0, 0, true});
  return result;
}

}  // namespace qkv
