#include "model/sentence_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace qkv {

template <class T>
std::vector<TokenizedText> SentenceModel<T>::tokenize(std::span<const std::string> texts,
                                                      TooLong too_long) const {
  constexpr std::size_t kFrame = 2;
  std::vector<TokenizedText> result;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto refuse = [&](const std::string& expected, Index got) {
      throw std::invalid_argument(
          fmt::format("SentenceModel: texts[{}]: expected {}, got {}", i, expected, got));
    };
    TokenizedText text = tokenizer.tokenize(texts[i], options.most_tokens);
    const auto count = static_cast<Index>(text.tokens.size());
    if (text.tokens.size() == kFrame && text.left_out == 0) refuse("a token or more", 0);
    if (too_long == TooLong::Refused && text.left_out > 0) {
      refuse(fmt::format("at most {} tokens, first and last among them", options.most_tokens),
             count + text.left_out);
    }
    result.push_back(std::move(text));
  }
  return result;
}

template <class T>
EncoderBatch SentenceModel<T>::batch_of(std::span<const TokenizedText> texts) const {
  std::size_t longest = 0;
  for (const TokenizedText& text : texts) longest = std::max(longest, text.tokens.size());
  const Extents<2> shape{static_cast<Index>(texts.size()), static_cast<Index>(longest)};
  EncoderBatch batch{Tensor<Index, 2>(shape), Tensor<bool, 2>(shape)};
  std::fill_n(batch.tokens.data(), batch.tokens.elements().size(), tokenizer.padding());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    for (std::size_t t = 0; t < texts[i].tokens.size(); ++t) {
      batch.tokens(static_cast<Index>(i), static_cast<Index>(t)) = texts[i].tokens[t].id;
      (*batch.keep)(static_cast<Index>(i), static_cast<Index>(t)) = true;
    }
  }
  return batch;
}

template <class T>
Tensor<T, 2> SentenceModel<T>::embed(std::span<const std::string> texts, TooLong too_long) const {
  const EncoderBatch batch = batch_of(tokenize(texts, too_long));
  return pool(options.pooling, encoder.encode(batch), batch.keep).vectors;
}

template struct SentenceModel<double>;
template struct SentenceModel<float>;

}  // namespace qkv
