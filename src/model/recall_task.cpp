#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "model/tasks.h"

namespace qkv {
namespace {

/// The tokens of a vocabulary: keys, values, then joined pairs or padding.
class Tokens {
 public:
  explicit Tokens(const RecallOptions& options) : options_(options) {}

  static Index key(Index k) noexcept { return k; }
  Index value(Index v) const noexcept { return options_.keys + v; }
  Index pair(Index k, Index v) const noexcept {
    return options_.keys + options_.values + k * options_.values + v;
  }
  Index padding() const noexcept {
    return options_.keys + options_.values +
           (options_.joined ? options_.keys * options_.values : 0);
  }
  Index count() const noexcept {
    return padding() + (options_.padding && !options_.padding->misleading ? 1 : 0);
  }

 private:
  const RecallOptions& options_;
};

Index tokens_a_pair(const RecallOptions& options) { return options.joined ? 1 : 2; }

Index tokens_a_sequence(const RecallOptions& options) {
  return options.pairs * tokens_a_pair(options) + options.queries;
}

/// Writes one sequence of a batch, token by token.
class SequenceWriter {
 public:
  SequenceWriter(const RecallOptions& options, TokenBatch& batch, Index sequence)
      : options_(options), tokens_(options), batch_(batch), sequence_(sequence) {}

  void pair(Index key, Index value, bool keep) {
    if (options_.joined) {
      token(tokens_.pair(key, value), keep);
    } else {
      token(Tokens::key(key), keep);
      token(tokens_.value(value), keep);
    }
  }
  void query(Index key, Index value) {
    batch_.targets(sequence_, next_) = tokens_.value(value);
    token(Tokens::key(key), true);
  }
  void padding() {
    for (Index i = 0; i < tokens_a_pair(options_); ++i) token(tokens_.padding(), false);
  }

 private:
  void token(Index token, bool keep) {
    batch_.tokens(sequence_, next_) = token;
    if (batch_.keep) (*batch_.keep)(sequence_, next_) = keep;
    ++next_;
  }

  const RecallOptions& options_;
  Tokens tokens_;
  TokenBatch& batch_;
  Index sequence_;
  Index next_ = 0;
};

struct Pairs {
  std::vector<Index> keys;  // different ones
  std::vector<Index> values;

  Index count() const { return static_cast<Index>(keys.size()); }
  Index key(Index i) const { return keys[static_cast<std::size_t>(i)]; }
  Index value(Index i) const { return values[static_cast<std::size_t>(i)]; }
};

Pairs draw_pairs(const RecallOptions& options, Index count, Random& random) {
  Pairs pairs{std::vector<Index>(static_cast<std::size_t>(options.keys)), {}};
  std::iota(pairs.keys.begin(), pairs.keys.end(), Index{0});
  for (Index i = 0; i < count; ++i) {
    std::swap(pairs.keys[static_cast<std::size_t>(i)],
              pairs.keys[static_cast<std::size_t>(i + random.below(options.keys - i))]);
    pairs.values.push_back(random.below(options.values));
  }
  pairs.keys.resize(static_cast<std::size_t>(count));
  return pairs;
}

void write_padding(const RecallOptions& options, const Pairs& pairs, SequenceWriter& writer,
                   Random& random) {
  for (Index i = pairs.count(); i < options.pairs; ++i) {
    if (!options.padding->misleading) {
      writer.padding();
      continue;
    }
    const Index of = random.below(pairs.count());
    const Index other = 1 + random.below(options.values - 1);
    writer.pair(pairs.key(of), (pairs.value(of) + other) % options.values, false);
  }
}

void write_sequence(const RecallOptions& options, SequenceWriter& writer, Random& random) {
  Index count = options.pairs;
  if (options.padding) {
    const Index fewest = options.padding->fewest_pairs;
    count = fewest + random.below(options.pairs - fewest + 1);
  }
  const Pairs pairs = draw_pairs(options, count, random);
  const bool left = options.padding && options.padding->side == PaddingSide::Left;
  if (left) write_padding(options, pairs, writer, random);
  for (Index i = 0; i < count; ++i) writer.pair(pairs.key(i), pairs.value(i), true);
  for (Index i = 0; i < options.queries; ++i) {
    const Index asked = random.below(count);
    writer.query(pairs.key(asked), pairs.value(asked));
  }
  if (options.padding && !left) write_padding(options, pairs, writer, random);
}

TokenBatch draw_recall(const RecallOptions& options, Index sequences, Random& random) {
  const Extents<2> shape{sequences, tokens_a_sequence(options)};
  TokenBatch batch{.tokens = Tensor<Index, 2>(shape), .targets = Tensor<Index, 2>(shape)};
  std::fill(batch.targets.elements().begin(), batch.targets.elements().end(), kIgnoredTarget);
  if (options.padding) batch.keep.emplace(shape);
  for (Index b = 0; b < sequences; ++b) {
    SequenceWriter writer(options, batch, b);
    write_sequence(options, writer, random);
  }
  return batch;
}

void check(const RecallOptions& options) {
  const auto between = [](std::string_view argument, Index value, Index lowest,
                          std::optional<Index> highest) {
    if (value >= lowest && (!highest || value <= *highest)) return;
    throw std::invalid_argument(fmt::format(
        "recall_task: {}: expected {}, got {}", argument,
        highest ? fmt::format("{} to {}", lowest, *highest) : fmt::format("{} or more", lowest),
        value));
  };
  const bool misleading = options.padding && options.padding->misleading;
  between("pairs", options.pairs, 1, std::nullopt);
  between("keys", options.keys, options.pairs, std::nullopt);
  between("values", options.values, misleading ? 2 : 1, std::nullopt);
  between("queries", options.queries, 1, std::nullopt);
  if (options.padding) {
    between("padding.fewest_pairs", options.padding->fewest_pairs, 1, options.pairs);
  }
}

}  // namespace

Task recall_task(const RecallOptions& options) {
  check(options);
  const auto draw = [options](Index sequences, Random& random) {
    return draw_recall(options, sequences, random);
  };
  return {"recall", Tokens(options).count(), tokens_a_sequence(options), draw, draw};
}

}  // namespace qkv
