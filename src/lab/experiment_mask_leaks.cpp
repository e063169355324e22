#include "lab/experiment_mask_fills.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "lab/experiment_parts.h"
#include "lab/hand_written.h"
#include "lab/text_style.h"

namespace qkv::lab {
namespace {

constexpr Index kWidth = 16;
constexpr Index kPadded = 2;  // tokens on the left: their own rows see nothing
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kFarBelow = -20000;  // logits of the visible keys in the hard case

/// The first tokens.
Mask padding_mask() {
  Tensor<bool, 2> keep({1, kFillTokens});
  for (Index s = kPadded; s < kFillTokens; ++s) keep(0, s) = true;
  return Mask::key_padding(std::as_const(keep).view(), Polarity::Keep);
}

/// Causal, with the first tokens as padding: rows below kPadded see nothing.
Mask left_padded_mask() { return Mask::causal() & padding_mask(); }

Tensor<bool, 4> hidden_cells(const Mask& mask) {
  const BoundMask bound = mask.bind("lab", {1, 1, kFillTokens, kFillTokens});
  Tensor<bool, 4> hides({1, 1, kFillTokens, kFillTokens});
  for (Index t = 0; t < kFillTokens; ++t) {
    for (Index s = 0; s < kFillTokens; ++s) hides(0, 0, t, s) = !bound.visible(0, 0, t, s);
  }
  return hides;
}

/// Queries, keys and values of one head, and cells that are hidden. Queries are scaled already, so that no product overflows
/// float16.
struct Situation {
  Tensor<double, 4> query;
  Tensor<double, 4> key;
  Tensor<double, 4> value;
  Tensor<bool, 4> hides;
};

Situation usual(std::uint64_t seed) {
  NormalNumbers numbers(seed);
  const Extents<4> shape = {1, 1, kFillTokens, kWidth};
  auto query = numbers.tensor<double, 4>(shape, 1 / std::sqrt(static_cast<double>(kWidth)));
  auto key = numbers.tensor<double, 4>(shape);
  auto value = numbers.tensor<double, 4>(shape);
  return {std::move(query), std::move(key), std::move(value), hidden_cells(left_padded_mask())};
}

/// Visible keys with logits far below 0, hidden ones with logits about 0: a query that likes none of what it may see.
Situation far_below(std::uint64_t seed) {
  Situation situation = usual(seed);
  const double size = std::sqrt(-kFarBelow / static_cast<double>(kWidth));
  for (double& element : situation.query.elements()) element = size;
  for (double& element : situation.key.elements()) element *= 0.001;
  for (Index s = kPadded; s < kFillTokens; ++s) {
    for (Index d = 0; d < kWidth; ++d) situation.key(0, 0, s, d) -= size;
  }
  return situation;
}

void note(double weight, double& largest) {
  if (std::isnan(weight) || weight > largest) largest = weight;  // once NaN, it stays
}

Leak leak_of(const Tensor<double, 4>& weights, const Tensor<bool, 4>& hides) {
  Leak leak;
  for (Index t = 0; t < kFillTokens; ++t) {
    for (Index s = 0; s < kFillTokens; ++s) {
      if (!hides(0, 0, t, s)) continue;
      note(weights(0, 0, t, s), t < kPadded ? leak.blind : leak.seeing);
    }
  }
  return leak;
}

HandWrittenResults by_hand(const Situation& situation, DType dtype, double fill) {
  return attend_by_hand({.query = situation.query.view(),
                         .key = situation.key.view(),
                         .value = situation.value.view(),
                         .hides = std::as_const(situation.hides).view(),
                         .fill = fill,
                         .scale = 1,
                         .dtype = dtype});
}

/// The causal mask and that of the padding, added one after the other.
HandWrittenResults added_by_hand(const Situation& situation, DType dtype, double fill) {
  const Tensor<bool, 4> causal = hidden_cells(Mask::causal());
  const Tensor<bool, 4> padding = hidden_cells(padding_mask());
  return attend_by_hand({.query = situation.query.view(),
                         .key = situation.key.view(),
                         .value = situation.value.view(),
                         .hides = causal.view(),
                         .masked_by = MaskedBy::Adding,
                         .fill = fill,
                         .also_hides = padding.view(),
                         .scale = 1,
                         .dtype = dtype});
}

bool has_nan(const Tensor<double, 4>& tensor, Index first_row) {
  for (Index t = first_row; t < kFillTokens; ++t) {
    for (Index d = 0; d < tensor.shape(3); ++d) {
      if (std::isnan(tensor(0, 0, t, d))) return true;
    }
  }
  return false;
}

struct Situations {
  Situation usual;
  Situation far_below;
  Situation with_garbage;  ///< NaN in the values that are padding
};

Situations draw(std::uint64_t seed) {
  Situations situations{usual(seed), far_below(seed), usual(seed)};
  for (Index s = 0; s < kPadded; ++s) {
    for (Index d = 0; d < kWidth; ++d) {
      situations.with_garbage.value(0, 0, s, d) = std::numeric_limits<double>::quiet_NaN();
    }
  }
  return situations;
}

FillResult measure(const Situations& situations, DType dtype, double fill) {
  FillResult result;
  const auto leak = [&](const Situation& situation, auto attend) {
    return leak_of(attend(situation, dtype, fill).weights, situation.hides);
  };
  result.one_mask = leak(situations.usual, by_hand);
  result.two_masks = leak(situations.usual, added_by_hand);
  result.far_below = leak(situations.far_below, by_hand);
  result.spreads_garbage = has_nan(by_hand(situations.with_garbage, dtype, fill).context, kPadded);
  return result;
}

template <class T>
HandWrittenResults by_engine(const Situation& situation, const engine::Options& options) {
  const auto stored = [](const Tensor<double, 4>& tensor) {
    Tensor<T, 4> result(tensor.shape());
    std::transform(tensor.elements().begin(), tensor.elements().end(), result.elements().begin(),
                   [](double element) { return static_cast<T>(element); });
    return result;
  };
  const Tensor<T, 4> query = stored(situation.query);
  const Tensor<T, 4> key = stored(situation.key);
  const Tensor<T, 4> value = stored(situation.value);
  Tensor<engine::Arithmetic<T>, 4> context({1, 1, kFillTokens, kWidth});
  Tensor<engine::Arithmetic<T>, 4> weights({1, 1, kFillTokens, kFillTokens});
  engine::forward<T>({.query = std::as_const(query).view(),
                      .key = std::as_const(key).view(),
                      .value = std::as_const(value).view(),
                      .mask = left_padded_mask(),
                      .scale = 1},
                     {.context = context.view(), .weights = weights.view()}, options);
  HandWrittenResults results{Tensor<double, 4>(weights.shape()),
                             Tensor<double, 4>(context.shape())};
  std::ranges::copy(weights.elements(), results.weights.elements().begin());
  std::ranges::copy(context.elements(), results.context.elements().begin());
  return results;
}

/// The library has one mask whatever it is an intersection of.
template <class T>
FillResult measure_engine(const Situations& situations, const engine::Options& options) {
  FillResult result;
  const auto leak = [&](const Situation& situation) {
    return leak_of(by_engine<T>(situation, options).weights, situation.hides);
  };
  result.one_mask = leak(situations.usual);
  result.two_masks = result.one_mask;
  result.far_below = leak(situations.far_below);
  result.spreads_garbage = has_nan(by_engine<T>(situations.with_garbage, options).context, kPadded);
  return result;
}

struct Fill {
  std::string name;
  double value = 0;
};

std::vector<Fill> fills_of(DType dtype) {
  return {{"-∞", -kInfinity},
          {fmt::format("lowest, {}", short_number(lowest(dtype))), lowest(dtype)},
          {"-1e9", -1e9},
          {"-1e4", -1e4}};
}

}  // namespace

std::vector<FillRow> measure_fills(std::uint64_t seed, const engine::Options& options) {
  const Situations situations = draw(seed);
  std::vector<FillRow> rows;
  for (const DType dtype : {DType::Float64, DType::Float32, DType::Float16, DType::BFloat16}) {
    for (const Fill& fill : fills_of(dtype)) {
      rows.push_back({dtype, fill.name, rounded(dtype, fill.value),
                      measure(situations, dtype, fill.value), false});
    }
    const FillResult ours = dtype == DType::Float64   ? measure_engine<double>(situations, options)
                            : dtype == DType::Float32 ? measure_engine<float>(situations, options)
                            : dtype == DType::Float16
                                ? measure_engine<Float16>(situations, options)
                                : measure_engine<BFloat16>(situations, options);
    rows.push_back({dtype, "", 0, ours, true});
  }
  return rows;
}

}  // namespace qkv::lab
