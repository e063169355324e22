// The tokenizer by hand: a vocabulary of a few pieces, and what its files must not hold.
#include "model/wordpiece.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "qkv/error.h"
#include "tests/temporary_directory.h"

namespace qkv {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Throws;
using ::testing::ThrowsMessage;

const std::vector<std::string> kVocabulary{"[PAD]", "[UNK]", "[CLS]",  "[SEP]", "[MASK]",
                                           "un",    "##aff", "##able", "##a",   "a",
                                           "e",     "!",     "中"};

WordPiece tokenizer(const WordPieceOptions& options = {}) { return {kVocabulary, options}; }

std::vector<std::string> texts(const TokenizedText& text) {
  std::vector<std::string> result;
  for (const TextToken& token : text.tokens) result.push_back(token.text);
  return result;
}

/// What the tokens between first and last came from.
std::vector<std::string> sources(const std::string& text) {
  std::vector<std::string> result;
  const TokenizedText tokenized = tokenizer().tokenize(text);
  for (std::size_t i = 1; i + 1 < tokenized.tokens.size(); ++i) {
    const TextToken& token = tokenized.tokens[i];
    result.push_back(text.substr(token.begin, token.end - token.begin));
  }
  return result;
}

TEST(WordPieceTest, TakesTheLongestPieces) {
  EXPECT_THAT(texts(tokenizer().tokenize("Unaffable!")),
              ElementsAre("[CLS]", "un", "##aff", "##able", "!", "[SEP]"));
}

TEST(WordPieceTest, AWordThatNoPiecesMakeIsUnknownAsAWhole) {
  EXPECT_THAT(texts(tokenizer().tokenize("a unaffx a")),
              ElementsAre("[CLS]", "a", "[UNK]", "a", "[SEP]"));
  EXPECT_THAT(sources("a unaffx a"), ElementsAre("a", "unaffx", "a"));
}

TEST(WordPieceTest, AWordOfTooManyCharactersIsUnknown) {
  WordPieceOptions options;
  options.longest_word = 3;
  EXPECT_THAT(texts(tokenizer(options).tokenize("aaa aaaa \xC3\xA9")),
              ElementsAre("[CLS]", "a", "##a", "##a", "[UNK]", "e", "[SEP]"));
}

TEST(WordPieceTest, TokensKnowTheirBytes) {
  EXPECT_THAT(sources("  \xC3\xA9!\xE4\xB8\xAD"
                      "a "),
              ElementsAre("\xC3\xA9", "!", "\xE4\xB8\xAD", "a"));
}

TEST(WordPieceTest, SpecialTokensStandForThemselves) {
  const TokenizedText text = tokenizer().tokenize("un[MASK]able [mask]");
  EXPECT_THAT(texts(text),
              ElementsAre("[CLS]", "un", "[MASK]", "[UNK]", "[UNK]", "[UNK]", "[UNK]", "[SEP]"));
  EXPECT_TRUE(text.tokens[2].special);
  EXPECT_FALSE(text.tokens[3].special);
}

TEST(WordPieceTest, BytesThatAreNotUtf8AreLeftOut) {
  EXPECT_THAT(sources("a\xFF!\xC3"), ElementsAre("a", "!"));
  EXPECT_THAT(sources("\xF0\x9F\x92"), ElementsAre());
}

TEST(WordPieceTest, TellsWhatDidNotFit) {
  const TokenizedText text = tokenizer().tokenize("a e a e", 4);
  EXPECT_THAT(texts(text), ElementsAre("[CLS]", "a", "e", "[SEP]"));
  EXPECT_EQ(text.left_out, 2);
  EXPECT_EQ(tokenizer().tokenize("a e", 4).left_out, 0);
  EXPECT_THAT(texts(tokenizer().tokenize("a e", 2)), ElementsAre("[CLS]", "[SEP]"));
  EXPECT_THAT([] { tokenizer().tokenize("a", 1); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("most: expected 2 or more, got 1")));
}

class WordPieceFilesTest : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder.file(name), std::ios::binary) << text;
  }
  void write_vocabulary() const {
    std::string text;
    for (const std::string& token : kVocabulary) text += token + "\n";
    write("vocab.txt", text);
  }
  WordPiece load() const { return load_wordpiece(folder.file("")); }

  TemporaryDirectory folder;
};

/// Of a tokenizer.json with the vocabulary above, but for a part.
std::string tokenizer_json(const std::string& model, const std::string& rest = "") {
  std::string vocabulary;
  for (std::size_t i = 0; i < kVocabulary.size(); ++i) {
    vocabulary += (i == 0 ? "\"" : ",\"") + kVocabulary[i] + "\":" + std::to_string(i);
  }
  return R"({"model":{"vocab":{)" + vocabulary + "}" + model + "}" + rest + "}";
}

TEST_F(WordPieceFilesTest, AVocabularyOfLines) {
  write_vocabulary();
  EXPECT_EQ(load().size(), static_cast<Index>(kVocabulary.size()));
  EXPECT_THAT(texts(load().tokenize("UNaff")), ElementsAre("[CLS]", "un", "##aff", "[SEP]"));
}

TEST_F(WordPieceFilesTest, LinesMayEndAsOnWindows) {
  write("vocab.txt", "[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\n[MASK]\r\na");
  EXPECT_THAT(texts(load().tokenize("a")), ElementsAre("[CLS]", "a", "[SEP]"));
}

TEST_F(WordPieceFilesTest, TheConfigurationIsHeeded) {
  write_vocabulary();
  write("tokenizer_config.json",
        R"({"do_lower_case":false,"strip_accents":true,"mask_token":{"content":"[MASK]"}})");
  EXPECT_THAT(texts(load().tokenize("A a\xCC\x81")), ElementsAre("[CLS]", "[UNK]", "a", "[SEP]"));
}

TEST_F(WordPieceFilesTest, TokenizerJsonComesFirst) {
  write("vocab.txt", "not this one");
  write("tokenizer.json",
        tokenizer_json(R"(,"max_input_chars_per_word":2)",
                       R"(,"normalizer":{"type":"BertNormalizer","lowercase":false},
                          "added_tokens":[{"content":"un"}])"));
  EXPECT_THAT(texts(load().tokenize("aa aaa A unun")),
              ElementsAre("[CLS]", "a", "##a", "[UNK]", "[UNK]", "un", "un", "[SEP]"));
}

struct Broken {
  const char* name;
  const char* file;
  std::string text;
  std::string message;  ///< in what is said of it
};

TEST_F(WordPieceFilesTest, ClearErrors) {
  const std::string deep(100000, '[');
  const std::vector<Broken> table{
      {"empty vocabulary", "vocab.txt", "", "expected the special token \"[UNK]\", got none"},
      {"no mask", "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n", "special token \"[MASK]\""},
      {"not UTF-8", "vocab.txt", "[PAD]\n\xFF\xFE\n", "at byte 6: expected UTF-8"},
      {"bytes", "tokenizer.json", std::string("\0\x01\x02", 3), "expected JSON"},
      {"empty", "tokenizer.json", "", "expected JSON"},
      {"cut off", "tokenizer.json", R"({"model":)", "expected JSON"},
      {"deep", "tokenizer.json", deep, "expected JSON"},
      {"a list", "tokenizer.json", "[]", "expected an object, got a list"},
      {"no model", "tokenizer.json", "{}", "model: expected an object, got none"},
      {"model a number", "tokenizer.json", R"({"model":1})", "model: expected an object, got 1"},
      {"no vocabulary", "tokenizer.json", R"({"model":{}})", "model.vocab: expected an object"},
      {"another model", "tokenizer.json", tokenizer_json(R"(,"type":"BPE")"),
       "model.type: expected \"WordPiece\", got BPE"},
      {"twice", "tokenizer.json", R"({"model":{"vocab":{"a":0,"b":0}}})",
       "model.vocab.b: expected a number below 2 of its own, got 0"},
      {"beyond", "tokenizer.json", R"({"model":{"vocab":{"a":7}}})", "got 7"},
      {"negative", "tokenizer.json", R"({"model":{"vocab":{"a":-1}}})", "got -1"},
      {"huge", "tokenizer.json", R"({"model":{"vocab":{"a":18446744073709551615}}})",
       "expected a whole number"},
      {"fraction", "tokenizer.json", R"({"model":{"vocab":{"a":0.5}}})", "expected a whole number"},
      {"text", "tokenizer.json", R"({"model":{"vocab":{"a":"0"}}})", "expected a whole number"},
      {"normalizer", "tokenizer.json", tokenizer_json("", R"(,"normalizer":{"type":"NFC"})"),
       "normalizer.type: expected \"BertNormalizer\""},
      {"splitter", "tokenizer.json",
       tokenizer_json("", R"(,"pre_tokenizer":{"type":"Whitespace"})"), "pre_tokenizer.type"},
      {"stripping", "tokenizer.json",
       tokenizer_json("", R"(,"added_tokens":[{"content":"a","lstrip":true}])"),
       "added_tokens[0].lstrip: expected false, got true"},
      {"nameless", "tokenizer.json", tokenizer_json("", R"(,"added_tokens":[{}])"),
       "added_tokens[0].content: expected a text, got none"},
      {"no list", "tokenizer.json", tokenizer_json("", R"(,"added_tokens":{})"),
       "added_tokens: expected a list, got an object"},
      {"unknown added", "tokenizer.json",
       tokenizer_json("", R"(,"added_tokens":[{"content":"zz"}])"), "special token \"zz\""},
      {"flag", "tokenizer_config.json", R"({"do_lower_case":"yes"})",
       "do_lower_case: expected true or false, got \"yes\""},
      {"another tokenizer", "tokenizer_config.json", R"({"tokenizer_class":"RobertaTokenizer"})",
       "tokenizer_class: expected BertTokenizer, got RobertaTokenizer"},
      {"raw words", "tokenizer_config.json", R"({"do_basic_tokenize":false})", "do_basic_tokenize"},
      {"token a number", "tokenizer_config.json", R"({"mask_token":3})",
       "mask_token: expected a text"},
  };
  for (const Broken& broken : table) {
    const TemporaryDirectory here;
    const auto write_here = [&](const std::string& name, const std::string& text) {
      std::ofstream(here.file(name), std::ios::binary) << text;
    };
    std::string vocabulary;
    for (const std::string& token : kVocabulary) vocabulary += token + "\n";
    write_here("vocab.txt", vocabulary);
    write_here(broken.file, broken.text);
    EXPECT_THAT([&] { load_wordpiece(here.file("")); },
                ThrowsMessage<FileError>(AllOf(HasSubstr(broken.file), HasSubstr(broken.message))))
        << broken.name;
  }
}

TEST_F(WordPieceFilesTest, AFolderWithoutVocabulary) {
  EXPECT_THAT([&] { load(); }, ThrowsMessage<FileError>(HasSubstr("vocab.txt")));
}

}  // namespace
}  // namespace qkv
