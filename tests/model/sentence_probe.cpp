// What the sentence model makes of texts, for tests in Python.
//
//   sentence_probe words IN OUT            {"texts": […], "lower_case": …} → the words of each text
//   sentence_probe tokens FOLDER IN OUT    {"texts": […], "most": …} → [ids, texts, begins, ends] of each text
//   sentence_probe embed FOLDER IN OUT     {"texts": […]} → .safetensors: "padded", all texts in one batch, and "alone"
//   sentence_probe rounds FOLDER IN        {"texts": […]} → the seconds of encoding them in one batch, for each line that comes in
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/sentence_model.h"
#include "model/utf8.h"
#include "qkv/io.h"

namespace qkv {
namespace {

using Json = nlohmann::json;

Json read(const std::string& path) { return Json::parse(std::ifstream(path)); }

void write(const std::string& path, const Json& json) { std::ofstream(path) << json.dump(); }

void write_words(const Json& input, const std::string& output) {
  BertTextOptions options;
  options.lower_case = input.at("lower_case").get<bool>();
  Json list = Json::array();
  for (const std::string text : input.at("texts")) {
    Json words = Json::array();
    for (const BertWord& word : bert_words(text, 0, text.size(), options)) {
      std::string characters;
      for (const BertCharacter& character : word) append_utf8(character.code, characters);
      words.push_back(characters);
    }
    list.push_back(std::move(words));
  }
  write(output, list);
}

void write_tokens(const std::string& folder, const Json& input, const std::string& output) {
  const WordPiece tokenizer = load_wordpiece(folder);
  std::optional<Index> most;
  if (input.contains("most")) most = input.at("most").get<Index>();
  Json list = Json::array();
  for (const std::string text : input.at("texts")) {
    Json row{Json::array(), Json::array(), Json::array(), Json::array()};
    for (const TextToken& token : tokenizer.tokenize(text, most).tokens) {
      row[0].push_back(token.id);
      row[1].push_back(token.text);
      row[2].push_back(token.begin);
      row[3].push_back(token.end);
    }
    list.push_back(std::move(row));
  }
  write(output, list);
}

void write_embeddings(const SentenceModel<float>& model, const std::vector<std::string>& texts,
                      const std::string& output) {
  const Tensor<float, 2> padded = model.embed(texts, TooLong::Truncated);
  Tensor<float, 2> alone(padded.shape());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const Tensor<float, 2> one = model.embed(std::span(texts).subspan(i, 1), TooLong::Truncated);
    std::copy_n(one.data(), one.shape(1), alone.data() + static_cast<Index>(i) * one.shape(1));
  }
  TensorFile file;
  file.tensors.emplace("padded", store(padded.view()));
  file.tensors.emplace("alone", store(alone.view()));
  write_tensors(output, file);
}

void write_rounds(const SentenceModel<float>& model, const std::vector<std::string>& texts) {
  const EncoderBatch batch = model.batch_of(model.tokenize(texts, TooLong::Truncated));
  for (std::string line; std::getline(std::cin, line);) {
    const auto begin = std::chrono::steady_clock::now();
    const Tensor<float, 3> tokens = model.encoder.encode(batch);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    std::cout << seconds.count() << ' ' << tokens(0, 0, 0) << std::endl;
  }
}

int run(const std::vector<std::string>& arguments) {
  const std::string mode = arguments.at(0);
  if (mode == "words") {
    write_words(read(arguments.at(1)), arguments.at(2));
    return EXIT_SUCCESS;
  }
  const std::string& folder = arguments.at(1);
  const Json input = read(arguments.at(2));
  if (mode == "tokens") {
    write_tokens(folder, input, arguments.at(3));
    return EXIT_SUCCESS;
  }
  const auto model = load_sentence_model<float>(folder);
  const auto texts = input.at("texts").get<std::vector<std::string>>();
  if (mode == "embed") {
    write_embeddings(model, texts, arguments.at(3));
  } else {
    write_rounds(model, texts);
  }
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace qkv

int main(int argc, char** argv) {
  try {
    return qkv::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return EXIT_FAILURE;
  }
}
