// What a model is trained on: a text as bytes, or a task whose answer is known.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "model/decoder.h"
#include "model/random.h"

namespace qkv {

/// Sequences of one length over one vocabulary, drawn at random.
struct Task {
  std::string name;
  Index vocabulary = 0;
  Index tokens = 0;  ///< of a sequence
  std::function<TokenBatch(Index sequences, Random& random)> training;
  /// Other sequences of the same kind: of a text, from a part that training never draws from.
  std::function<TokenBatch(Index sequences, Random& random)> held_out;
};

struct CopyOptions {
  Index symbols = 16;
  Index length = 16;  ///< to copy
};
/// x₁ … xₙ, a separator, x₁ … xₙ₋₁: targets are the x after the separator. 2n tokens; the separator is the last symbol.
Task copy_task(const CopyOptions& options = {});

enum class PaddingSide : std::uint8_t { Left, Right };

struct RecallPadding {
  PaddingSide side = PaddingSide::Left;
  Index fewest_pairs = 1;  ///< each sequence draws how many it has
  /// Padding holds pairs that look like the others, and contradict them; else a token of its own. A model with positions
  /// learns which side they come from, so that only one without them is misled.
  bool misleading = false;
};

struct RecallOptions {
  Index keys = 16;
  Index values = 16;
  Index pairs = 8;    ///< keys of a sequence differ
  Index queries = 1;  ///< each of a key of the sequence
  /// A pair is one token, so that one layer can find it. Else its key and its value follow each other: two layers could find
  /// that, but stay for thousands of steps where all values of the sequence are equally likely.
  bool joined = true;
  std::optional<RecallPadding> padding = std::nullopt;
};
/// Associative recall: pairs of a key and a value, then queries, whose targets are their values. Queries come last, after left
/// padding as without; right padding follows them.
Task recall_task(const RecallOptions& options = {});

struct InductionOptions {
  Index symbols = 32;
  Index tokens = 64;
  Index shortest_period = 8;
  Index longest_period = 24;
};
/// A random sequence that repeats itself with a period of its own; targets are the tokens that the repetition determines.
Task induction_task(const InductionOptions& options = {});

/// Bytes: the target of each is the next. The last tenth of the text is held out. Throws std::invalid_argument where either part is
/// shorter than a sequence and its last target.
Task text_task(std::string text, Index tokens);

/// The text that comes with the program: Lewis Carroll, Alice's Adventures in Wonderland.
std::string default_text();
/// Throws FileError where the file cannot be read.
std::string read_text(const std::string& path);

}  // namespace qkv
