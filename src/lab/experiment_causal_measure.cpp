#include "lab/experiment_causal_measure.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

namespace qkv::lab {
namespace {

constexpr double kTemperature = 0.8;
constexpr Index kWritten = 1024;
constexpr std::size_t kWordLetters = 3;

Tensor<float, 3> logits_of(const Decoder<float>& decoder, const Tensor<Index, 2>& tokens) {
  TokenBatch batch;
  batch.tokens = tokens;
  batch.targets = Tensor<Index, 2>(tokens.shape());
  return decoder.forward(batch).logits;
}

/// Runs of letters that are long enough, in lower case.
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  for (const char byte : text + " ") {
    const bool upper = byte >= 'A' && byte <= 'Z';
    if (upper || (byte >= 'a' && byte <= 'z')) {
      word += upper ? static_cast<char>(byte - 'A' + 'a') : byte;
      continue;
    }
    if (word.size() >= kWordLetters) words.push_back(word);
    word.clear();
  }
  return words;
}

}  // namespace

Tensor<double, 2> influences(const Decoder<float>& decoder, const Task& task, std::uint64_t seed) {
  Random random(seed);
  const TokenBatch drawn = task.held_out(1, random);
  const Tensor<Index, 2> tokens =
      contiguous_copy(std::as_const(drawn.tokens).view().slice(1, 0, kInfluenceTokens));
  const Tensor<float, 3> before = logits_of(decoder, tokens);
  Tensor<double, 2> influence({kInfluenceTokens, kInfluenceTokens});
  for (Index s = 0; s < kInfluenceTokens; ++s) {
    Tensor<Index, 2> changed = tokens;
    changed(0, s) = (changed(0, s) + 1) % decoder.options().vocabulary;
    const Tensor<float, 3> after = logits_of(decoder, changed);
    for (Index t = 0; t < kInfluenceTokens; ++t) {
      for (Index v = 0; v < before.shape(2); ++v) {
        influence(t, s) = std::max(
            influence(t, s), static_cast<double>(std::fabs(after(0, t, v) - before(0, t, v))));
      }
    }
  }
  return influence;
}

double largest_of_future(const Tensor<double, 2>& influence, Index t) {
  double largest = 0;
  for (Index s = t + 1; s < influence.shape(1); ++s) largest = std::max(largest, influence(t, s));
  return largest;
}

double largest_of_future(const Tensor<double, 2>& influence) {
  double largest = 0;
  for (Index t = 0; t < influence.shape(0); ++t)
    largest = std::max(largest, largest_of_future(influence, t));
  return largest;
}

std::string written_text(const Decoder<float>& decoder, std::uint64_t seed) {
  GenerationOptions options;
  options.tokens = kWritten;
  options.temperature = kTemperature;
  options.seed = seed;
  options.cache = false;  // what a query sees of a cache is not what these masks say
  return text_of(generate(decoder, tokens_of("Alice "), options));
}

double part_in_words(const std::string& text, const std::string& corpus) {
  const std::set<std::string> known = [&] {
    const std::vector<std::string> words = words_of(corpus);
    return std::set<std::string>(words.begin(), words.end());
  }();
  std::size_t letters = 0;
  for (const std::string& word : words_of(text)) {
    if (known.contains(word)) letters += word.size();
  }
  return static_cast<double>(letters) / static_cast<double>(text.size());
}

std::string printable(const std::string& text) {
  std::string result;
  for (const char byte : text) {
    if (byte == '\n' || byte == '\r') {
      result += ' ';
    } else if (byte >= ' ' && byte <= '~') {
      result += byte;
    } else {
      result += "·";
    }
  }
  return result;
}

}  // namespace qkv::lab
