// Text from a trained model, token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/decoder.h"

namespace qkv {

struct GenerationOptions {
  Index tokens = 200;
  std::optional<double> temperature = std::nullopt;  ///< absent: always the most likely token
  std::uint64_t seed = 17;
  /// Keys and values of the tokens so far are kept; else each token computes all of them again.
  bool cache = true;
  /// Told of each token; false stops.
  std::function<bool(Index token)> progress = {};
};

/// The tokens that follow the prompt. Without a cache the model sees the last `context` of them; with one prompt and tokens are
/// at most `context` together. Throws std::invalid_argument on an empty prompt, and where a cache is asked for and a block's
/// attention is changed in more than scale and tying.
template <class T>
std::vector<Index> generate(const Decoder<T>& decoder, std::span<const Index> prompt,
                            const GenerationOptions& options = {});

/// Bytes as tokens, and tokens as bytes.
std::vector<Index> tokens_of(std::string_view text);
std::string text_of(std::span<const Index> tokens);

}  // namespace qkv
