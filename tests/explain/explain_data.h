// Models to explain: recorded ones, and random ones.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "explain/decoder_model.h"
#include "qkv/io.h"

namespace qkv::test {

/// A decoder, text and values that make_explain_goldens.py recorded.
struct Recorded {
  std::string name;
  TensorFile file;
  std::shared_ptr<const Decoder<double>> decoder;
  std::vector<Index> tokens;
  explain::DecoderTarget target;

  explain::DecoderModel model() const { return {decoder, {.tokens = tokens}, target}; }
  std::vector<double> numbers(const std::string& value) const;
};

/// "learned": positions by a table, as many kv heads as heads, a logit. "rotary": one kv head, biases, a window, a head of its own,
/// RMS norms, a log-probability.
Recorded recorded(const std::string& name);

/// Two blocks of random weights of the order of 1, and a text.
struct RandomDecoder {
  std::shared_ptr<const Decoder<double>> decoder;
  std::vector<Index> tokens;

  explain::DecoderModel model() const { return {decoder, {.tokens = tokens}, {.token = 3}}; }
};
RandomDecoder random_decoder(Index tokens, std::uint64_t seed, DecoderOptions options = {});

inline explain::DecoderModel random_model(Index tokens, std::uint64_t seed,
                                          DecoderOptions options = {}) {
  return random_decoder(tokens, seed, std::move(options)).model();
}

}  // namespace qkv::test
