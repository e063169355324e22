#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "model/json_object.h"
#include "model/tasks.h"
#include "model/utf8.h"
#include "model/wordpiece.h"
#include "qkv/error.h"

namespace qkv {
namespace {

/// A token a line.
std::vector<std::string> read_vocabulary(const std::string& path) {
  const std::string text = read_text(path);
  std::vector<std::string> tokens;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = std::string_view(text).substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!is_utf8(line)) throw FileError(path, "expected UTF-8, got other bytes", begin);
    tokens.emplace_back(line);
    begin = end + 1;
  }
  return tokens;
}

/// The numbers of the tokens must be 0, 1, 2, …, in any order.
std::vector<std::string> vocabulary_of(const JsonObject& model) {
  const std::optional<JsonObject> vocabulary = model.object("vocab");
  if (!vocabulary) model.refuse("vocab", "an object", "none");
  std::vector<std::string> tokens(vocabulary->json().size());
  std::vector<bool> taken(tokens.size());
  for (const auto& [token, number] : vocabulary->json().items()) {
    const std::optional<Index> id = vocabulary->whole_number(token);
    const auto place = static_cast<std::size_t>(id.value_or(-1));
    if (place >= tokens.size() || taken[place]) {
      vocabulary->refuse(token,
                         fmt::format("a number below {} of its own", vocabulary->json().size()),
                         number.dump());
    }
    tokens[place] = token;
    taken[place] = true;
  }
  return tokens;
}

void expect_text(const JsonObject& object, std::string_view field, std::string_view expected) {
  const std::optional<std::string> text = object.text(field);
  if (text && *text != expected) object.refuse(field, fmt::format("\"{}\"", expected), *text);
}

void expect_absent(const JsonObject& token, std::string_view flag) {
  if (token.boolean(flag).value_or(false)) token.refuse(flag, "false", "true");
}

/// What tokenizer.json says, but for the padding and truncation of whoever wrote it.
std::vector<std::string> read_tokenizer(const JsonObject& file, WordPieceOptions& options) {
  const std::optional<JsonObject> model = file.object("model");
  if (!model) file.refuse("model", "an object", "none");
  expect_text(*model, "type", "WordPiece");
  options.unknown = model->text("unk_token").value_or(options.unknown);
  options.prefix = model->text("continuing_subword_prefix").value_or(options.prefix);
  options.longest_word =
      model->whole_number("max_input_chars_per_word").value_or(options.longest_word);
  if (const auto normalizer = file.object("normalizer")) {
    expect_text(*normalizer, "type", "BertNormalizer");
    if (!normalizer->boolean("clean_text").value_or(true)) {
      normalizer->refuse("clean_text", "true", "false");
    }
    BertTextOptions& text = options.text;
    text.lower_case = normalizer->boolean("lowercase").value_or(text.lower_case);
    text.space_chinese = normalizer->boolean("handle_chinese_chars").value_or(text.space_chinese);
    text.strip_accents = normalizer->boolean("strip_accents");
  }
  if (const auto splitter = file.object("pre_tokenizer")) {
    expect_text(*splitter, "type", "BertPreTokenizer");
  }
  if (const auto added = file.objects("added_tokens")) {
    for (const JsonObject& token : *added) {
      const std::optional<std::string> content = token.text("content");
      if (!content) token.refuse("content", "a text", "none");
      for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized"}) {
        expect_absent(token, flag);
      }
      options.special.push_back(*content);
    }
  }
  return vocabulary_of(*model);
}

/// A text, or an object with a content.
void read_special(const JsonObject& config, std::string_view field, std::string& token) {
  const auto found = config.json().find(std::string(field));
  if (found != config.json().end() && found->is_object()) {
    token = config.object(field)->text("content").value_or(token);
  } else {
    token = config.text(field).value_or(token);
  }
}

void read_config(const JsonObject& config, WordPieceOptions& options) {
  const std::string kind = config.text("tokenizer_class").value_or("BertTokenizer");
  if (!kind.starts_with("BertTokenizer")) config.refuse("tokenizer_class", "BertTokenizer", kind);
  BertTextOptions& text = options.text;
  text.lower_case = config.boolean("do_lower_case").value_or(text.lower_case);
  text.space_chinese = config.boolean("tokenize_chinese_chars").value_or(text.space_chinese);
  if (const auto strip = config.boolean("strip_accents")) text.strip_accents = strip;
  if (!config.boolean("do_basic_tokenize").value_or(true)) {
    config.refuse("do_basic_tokenize", "true", "false");
  }
  read_special(config, "unk_token", options.unknown);
  read_special(config, "cls_token", options.first);
  read_special(config, "sep_token", options.last);
  read_special(config, "pad_token", options.padding);
  read_special(config, "mask_token", options.mask);
}

}  // namespace

WordPiece load_wordpiece(const std::string& folder) {
  const auto file = [&](const char* name) {
    return (std::filesystem::path(folder) / name).string();
  };
  const std::string tokenizer = file("tokenizer.json");
  const std::string lines = file("vocab.txt");
  const std::string config = file("tokenizer_config.json");
  WordPieceOptions options;
  std::vector<std::string> vocabulary;
  const bool has_tokenizer = std::filesystem::exists(tokenizer);
  if (has_tokenizer) {
    vocabulary = read_tokenizer(JsonObject::read(tokenizer), options);
  } else {
    vocabulary = read_vocabulary(lines);
  }
  if (std::filesystem::exists(config)) read_config(JsonObject::read(config), options);
  try {
    return {vocabulary, options};
  } catch (const std::invalid_argument& error) {
    throw FileError(has_tokenizer ? tokenizer : lines, error.what());
  }
}

}  // namespace qkv
