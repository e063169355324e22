// What an experiment of the lesson finds: tables, charts and heat maps with their words in two languages.
// `qkv lab` prints it, writes it as JSON and draws it on the page.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/progress.h"
#include "base/text.h"
#include "qkv/tensor.h"

namespace qkv::lab {

using qkv::Text;

/// A measured number with its spread over seeds, where noise matters.
struct Measured {
  double value = 0;
  std::optional<double> low;   ///< smallest over the seeds
  std::optional<double> high;  ///< largest
};

using Cell = std::variant<Measured, std::int64_t, std::string, Text>;

struct Column {
  std::string key;  ///< of the JSON: "logit_variance"
  Text name;
  Text unit;  ///< empty: a pure number or words
};

struct Table {
  std::string key;
  Text title;
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;  ///< as many cells as there are columns
};

struct Series {
  Text name;
  std::vector<double> x;
  std::vector<double> y;
  std::vector<double> low;  ///< spread over seeds; empty: none
  std::vector<double> high;
};

struct Axis {
  Text name;
  bool logarithmic = false;
};

struct Chart {
  std::string key;
  Text title;
  Axis x;
  Axis y;
  std::vector<Series> series;
};

/// Weights (or other numbers) of one variant: every layer, sample and head that was recorded.
struct HeatMapVariant {
  Text name;                ///< "mask on the key axis", "mask on the query axis"
  Tensor<float, 5> values;  ///< [layers, samples, heads, T, S]; NaN is shown as NaN
  Tensor<std::uint8_t, 5>
      seen;  ///< what the mask lets through, axes of size 1 where it is shared; empty: no mask
};

/// What of the maps is shown first.
struct HeatMapStart {
  Index layer = 0;
  Index sample = 0;
  Index head = 0;
  Index shown = 0;   ///< number of the variant
  Index beside = 1;  ///< of the one beside it, where there are two or more
};

struct HeatMaps {
  std::string key;
  Text title;
  std::vector<std::string> query_labels;  ///< of the tokens; empty: their numbers
  std::vector<std::string> key_labels;
  std::vector<HeatMapVariant>
      variants;                 ///< of the same sizes; two or more can be held side by side
  std::optional<Text> predict;  ///< asked before the picture is revealed
  std::optional<Text> reveal;   ///< said with it
  HeatMapStart start = {};
};

/// What a method says of each token.
struct TokenScores {
  Text name;
  std::vector<double> scores;  ///< as many as there are tokens; shown against the largest
};

/// Tokens of a text in the colours of their scores, a line a method.
struct TokenMaps {
  std::string key;
  Text title;
  std::vector<std::string> tokens;
  std::vector<TokenScores> methods;
};

/// One effect that the lesson names, and whether it was there. Tests fail where it is not.
struct Effect {
  std::string key;  ///< "variance_is_dk"
  Text claim;
  Text found;  ///< with the numbers
  bool holds = false;
};

struct Experiment {
  std::string name;                                   ///< "scale"
  int section = 0;                                    ///< of the lesson
  std::optional<std::string> command = std::nullopt;  ///< that ran it; absent: "qkv lab scale"
  Text title;
  Text explanation;  ///< what is done and why, a paragraph or two
  std::vector<Table> tables;
  std::vector<Chart> charts;
  std::vector<HeatMaps> heat_maps;
  std::vector<TokenMaps> token_maps = {};
  std::vector<Effect> effects;
  Text seen;  ///< what one should have seen, in a sentence
};

using qkv::Interrupted;

struct ExperimentOptions {
  bool quick = false;
  std::uint64_t seed = 17;
  std::optional<std::string>
      text_file;                      ///< to train on; none: the text that comes with the program
  std::optional<std::string> inject;  ///< a class of the catalogue, in training experiments
  /// Told of each variant that is trained while there is something to inject, and whether its models could carry it.
  std::function<void(const Text& variant, bool carries)> injected;
  int threads = 0;    ///< 0: as many as OpenMP gives
  Progress progress;  ///< false stops the experiment (throws Interrupted)
};

}  // namespace qkv::lab
