#include "model/tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

namespace qkv {
namespace {

void expect(bool holds, std::string_view operation, std::string_view argument,
            const std::string& expected, Index got) {
  if (holds) return;
  throw std::invalid_argument(
      fmt::format("{}: {}: expected {}, got {}", operation, argument, expected, got));
}

/// `count` different ones of 0, 1, …, below − 1, in random order.
std::vector<Index> draw_distinct(Index count, Index below, Random& random) {
  std::vector<Index> numbers(static_cast<std::size_t>(below));
  std::iota(numbers.begin(), numbers.end(), Index{0});
  for (Index i = 0; i < count; ++i) {
    std::swap(numbers[static_cast<std::size_t>(i)],
              numbers[static_cast<std::size_t>(i + random.below(below - i))]);
  }
  numbers.resize(static_cast<std::size_t>(count));
  return numbers;
}

/// No targets yet.
TokenBatch empty_batch(Index sequences, Index tokens) {
  TokenBatch batch{.tokens = Tensor<Index, 2>({sequences, tokens}),
                   .targets = Tensor<Index, 2>({sequences, tokens})};
  std::fill(batch.targets.elements().begin(), batch.targets.elements().end(), kIgnoredTarget);
  return batch;
}

using Draw = std::function<TokenBatch(Index sequences, Random& random)>;

/// A task that has no end of sequences, so that held-out ones are drawn in the same way.
Task generated_task(std::string name, Index vocabulary, Index tokens, const Draw& draw) {
  return {std::move(name), vocabulary, tokens, draw, draw};
}

TokenBatch draw_copy(const CopyOptions& options, Index sequences, Random& random) {
  const Index n = options.length;
  TokenBatch batch = empty_batch(sequences, 2 * n);
  for (Index b = 0; b < sequences; ++b) {
    for (Index i = 0; i < n; ++i) {
      const Index symbol = random.below(options.symbols);
      batch.tokens(b, i) = symbol;
      batch.targets(b, n + i) = symbol;
      if (i + 1 < n) batch.tokens(b, n + 1 + i) = symbol;
    }
    batch.tokens(b, n) = options.symbols;
  }
  return batch;
}

TokenBatch draw_induction(const InductionOptions& options, Index sequences, Random& random) {
  TokenBatch batch = empty_batch(sequences, options.tokens);
  for (Index b = 0; b < sequences; ++b) {
    const Index period = options.shortest_period +
                         random.below(options.longest_period - options.shortest_period + 1);
    const std::vector<Index> symbols = draw_distinct(period, options.symbols, random);
    const auto at = [&](Index t) { return symbols[static_cast<std::size_t>(t % period)]; };
    for (Index t = 0; t < options.tokens; ++t) {
      batch.tokens(b, t) = at(t);
      if (t >= period) batch.targets(b, t) = at(t + 1);
    }
  }
  return batch;
}

TokenBatch draw_text(std::string_view text, Index tokens, Index sequences, Random& random) {
  TokenBatch batch = empty_batch(sequences, tokens);
  const auto byte = [&](Index i) {
    return Index{static_cast<unsigned char>(text[static_cast<std::size_t>(i)])};
  };
  for (Index b = 0; b < sequences; ++b) {
    const Index first = random.below(static_cast<Index>(text.size()) - tokens);
    for (Index t = 0; t < tokens; ++t) {
      batch.tokens(b, t) = byte(first + t);
      batch.targets(b, t) = byte(first + t + 1);
    }
  }
  return batch;
}

}  // namespace

Task copy_task(const CopyOptions& options) {
  constexpr std::string_view kOperation = "copy_task";
  expect(options.symbols >= 1, kOperation, "symbols", "1 or more", options.symbols);
  expect(options.length >= 1, kOperation, "length", "1 or more", options.length);
  return generated_task(
      "copy", options.symbols + 1, 2 * options.length,
      [options](Index sequences, Random& random) { return draw_copy(options, sequences, random); });
}

Task induction_task(const InductionOptions& options) {
  constexpr std::string_view kOperation = "induction_task";
  expect(options.shortest_period >= 1, kOperation, "shortest_period", "1 or more",
         options.shortest_period);
  expect(options.longest_period >= options.shortest_period, kOperation, "longest_period",
         fmt::format("{} or more", options.shortest_period), options.longest_period);
  expect(options.symbols >= options.longest_period, kOperation, "symbols",
         fmt::format("{} or more, for a period has different ones", options.longest_period),
         options.symbols);
  expect(options.tokens > options.longest_period, kOperation, "tokens",
         fmt::format("more than the longest period, {}", options.longest_period), options.tokens);
  return generated_task("induction", options.symbols, options.tokens,
                        [options](Index sequences, Random& random) {
                          return draw_induction(options, sequences, random);
                        });
}

Task text_task(std::string text, Index tokens) {
  constexpr std::string_view kOperation = "text_task";
  expect(tokens >= 1, kOperation, "tokens", "1 or more", tokens);
  const std::size_t held_out = text.size() / 10;
  expect(held_out > static_cast<std::size_t>(tokens), kOperation, "text",
         fmt::format("more than {} bytes, for sequences of {}", 10 * (tokens + 1), tokens),
         static_cast<Index>(text.size()));
  const std::size_t split = text.size() - held_out;
  const auto shared = std::make_shared<const std::string>(std::move(text));
  const auto part = [=](std::size_t first, std::size_t count) {
    return [=](Index sequences, Random& random) {
      return draw_text(std::string_view(*shared).substr(first, count), tokens, sequences, random);
    };
  };
  return {"text", 256, tokens, part(0, split), part(split, held_out)};
}

}  // namespace qkv
