// Vectors of texts: tokenizer, encoder and pooling of one folder, as the sentence-transformers library lays it out.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/encoder.h"
#include "model/pooling.h"
#include "model/wordpiece.h"

namespace qkv {

/// What becomes of a text that has more tokens than the model takes.
enum class TooLong : std::uint8_t { Refused, Truncated };

struct SentenceOptions {
  Index most_tokens = 512;  ///< of a text, first and last among them
  PoolingOptions pooling;
};

template <class T>
struct SentenceModel {
  WordPiece tokenizer;
  Encoder<T> encoder;
  SentenceOptions options;

  /// Throws std::invalid_argument that names the text that is empty (white space and what is removed count for nothing) or,
  /// where such are refused, too long.
  std::vector<TokenizedText> tokenize(std::span<const std::string> texts,
                                      TooLong too_long = TooLong::Refused) const;

  /// Right padding up to the longest.
  EncoderBatch batch_of(std::span<const TokenizedText> texts) const;

  /// [N,D]. Throws like tokenize.
  Tensor<T, 2> embed(std::span<const std::string> texts, TooLong too_long = TooLong::Refused) const;
};

/// The options that a folder's modules.json, its pooling's config.json and sentence_bert_config.json give; means without
/// normalization where there is no modules.json. Throws FileError where they ask for another module or pooling.
SentenceOptions read_sentence_options(const std::string& folder, const EncoderOptions& encoder);

/// Throws FileError like load_wordpiece, load_encoder and read_sentence_options, and where the vocabulary has tokens that the
/// encoder has no embedding of.
template <class T>
SentenceModel<T> load_sentence_model(const std::string& folder);

}  // namespace qkv
