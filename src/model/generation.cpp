#include "model/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "model/cached_decoder.h"
#include "model/random.h"

namespace qkv {
namespace {

/// Draws from the softmax of logits / temperature.
template <class T>
Index draw(std::span<const T> logits, double temperature, Random& random) {
  const auto largest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  std::vector<double> weights;
  double sum = 0;
  for (const T logit : logits) {
    weights.push_back(std::exp((static_cast<double>(logit) - largest) / temperature));
    sum += weights.back();
  }
  double left = sum * random.uniform();
  Index token = 0;
  for (const double weight : weights) {
    left -= weight;
    if (left < 0) return token;
    ++token;
  }
  return token - 1;  // rounding left something over
}

/// Logits after the last token, everything computed again.
template <class T>
std::vector<T> read_all(const Decoder<T>& decoder, std::span<const Index> tokens) {
  const auto seen =
      tokens.last(std::min(tokens.size(), static_cast<std::size_t>(decoder.options().context)));
  const auto count = static_cast<Index>(seen.size());
  TokenBatch batch{.tokens = Tensor<Index, 2>({1, count}), .targets = {}};
  std::copy(seen.begin(), seen.end(), batch.tokens.data());
  const DecoderResult<T> result = decoder.forward(batch);
  const T* last = &result.logits(0, count - 1, 0);
  return {last, last + decoder.options().vocabulary};
}

void check(const DecoderOptions& decoder, std::span<const Index> prompt,
           const GenerationOptions& options) {
  const auto refuse = [](std::string_view argument, const std::string& expected,
                         const std::string& got) {
    throw std::invalid_argument(
        fmt::format("generate: {}: expected {}, got {}", argument, expected, got));
  };
  if (prompt.empty()) refuse("prompt", "1 token or more", "none");
  for (const Index token : prompt) {
    if (token < 0 || token >= decoder.vocabulary) {
      refuse("prompt", fmt::format("tokens of 0 to {}", decoder.vocabulary - 1),
             fmt::format("{}", token));
    }
  }
  if (options.tokens < 0) refuse("tokens", "0 or more", fmt::format("{}", options.tokens));
  if (options.temperature && !(*options.temperature > 0)) {
    refuse("temperature", "a positive number", fmt::format("{}", *options.temperature));
  }
  const Index together = static_cast<Index>(prompt.size()) + options.tokens;
  if (options.cache && together > decoder.context) {
    refuse("tokens",
           fmt::format("with a cache, at most {} together with the prompt", decoder.context),
           fmt::format("{}", together));
  }
}

}  // namespace

template <class T>
std::vector<Index> generate(const Decoder<T>& decoder, std::span<const Index> prompt,
                            const GenerationOptions& options) {
  check(decoder.options(), prompt, options);
  Random random(options.seed);
  std::vector<Index> sequence(prompt.begin(), prompt.end());
  std::optional<CachedDecoder<T>> cached;
  if (options.cache) cached.emplace(decoder);
  std::size_t read = 0;
  for (Index i = 0; i < options.tokens; ++i) {
    const std::span<const Index> so_far(sequence);
    const std::vector<T> logits =
        cached ? cached->read(so_far.subspan(read)) : read_all(decoder, so_far);
    read = sequence.size();
    const Index token =
        options.temperature
            ? draw<T>(logits, *options.temperature, random)
            : static_cast<Index>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    sequence.push_back(token);
    if (options.progress && !options.progress(token)) break;
  }
  return {sequence.begin() + static_cast<std::ptrdiff_t>(prompt.size()), sequence.end()};
}

template std::vector<Index> generate(const Decoder<double>&, std::span<const Index>,
                                     const GenerationOptions&);
template std::vector<Index> generate(const Decoder<float>&, std::span<const Index>,
                                     const GenerationOptions&);

}  // namespace qkv
