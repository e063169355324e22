#include "lab/experiment_padding_measure.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/broadcast.h"
#include "check/diagnosis.h"

namespace qkv::lab {
namespace {

constexpr Index kSamples = 2;
constexpr Index kHeadWidth = 8;
constexpr double kSumTolerance = 1e-9;

bool valid(const PaddedBatch& batch, Index b, Index t) { return !batch.padding(b, t); }

/// Calls visit(h, t, s) for every cell of a sample, in row-major order.
template <class Visit>
void for_each_cell(Index heads, Index tokens, Visit visit) {
  for (Index h = 0; h < heads; ++h) {
    for (Index t = 0; t < tokens; ++t) {
      for (Index s = 0; s < tokens; ++s) visit(h, t, s);
    }
  }
}

/// Of a sample's context in rows of valid tokens.
struct ContextGap {
  double worst = 0;
  double largest = 0;
  Index entries = 0;
  Index nans = 0;

  double relative() const { return largest > 0 ? worst / largest : 0; }
};

ContextGap context_gap(const PaddedBatch& batch, Index b, const Tensor<double, 4>& got,
                       const Tensor<double, 4>& right) {
  ContextGap gap;
  for (Index h = 0; h < batch.heads; ++h) {
    for (Index t = 0; t < batch.tokens; ++t) {
      if (!valid(batch, b, t)) continue;
      for (Index d = 0; d < kHeadWidth; ++d) {
        const double entry = got(b, h, t, d);
        ++gap.entries;
        gap.largest = std::max(gap.largest, std::fabs(right(b, h, t, d)));
        if (std::isnan(entry)) {
          ++gap.nans;
        } else {
          gap.worst = std::max(gap.worst, std::fabs(entry - right(b, h, t, d)));
        }
      }
    }
  }
  return gap;
}

void add_weights(const PaddedBatch& batch, const Tensor<double, 4>& weights,
                 PaddingOutcome& result) {
  double rows = 0;
  double numbers = 0;  // rows that are no NaN
  for (Index h = 0; h < batch.heads; ++h) {
    for (Index t = 0; t < batch.tokens; ++t) {
      if (!valid(batch, 0, t)) continue;
      double sum = 0;
      double on_padding = 0;
      for (Index s = 0; s < batch.tokens; ++s) {
        sum += weights(0, h, t, s);
        if (batch.padding(0, s)) on_padding += weights(0, h, t, s);
      }
      ++rows;
      if (std::fabs(sum - 1) < kSumTolerance) ++result.sums_to_one;
      if (std::isnan(sum)) continue;
      ++numbers;
      result.padding_weight += on_padding;
    }
  }
  result.sums_to_one /= rows;
  if (numbers > 0) result.padding_weight /= numbers;
}

/// What `qkv check` makes of the results: everything but the rows of padding, which nobody reads.
std::string diagnosed(const PaddedBatch& batch, const Tensor<double, 4>& context, bool causal) {
  Dump dump;
  dump.shape = {kSamples,     batch.heads, batch.heads, batch.tokens,
                batch.tokens, kHeadWidth,  kHeadWidth};
  dump.query = batch.query;
  dump.key = batch.key;
  dump.value = batch.value;
  dump.has_heads = true;
  dump.scale = 1 / std::sqrt(static_cast<double>(kHeadWidth));
  dump.context = context;
  dump.ran_in = DType::Float64;
  dump.rules.causal = causal;
  dump.rules.padding.emplace(batch.padding.shape());
  std::ranges::transform(batch.padding.elements(), dump.rules.padding->elements().begin(),
                         std::logical_not<>());
  dump.read_rows = dump.rules.padding;
  DiagnoseOptions options;
  options.pairs = false;
  const Diagnosis diagnosis = diagnose(dump, options);
  if (diagnosis.causes.empty()) return {};
  return fmt::format("{}", fmt::join(diagnosis.causes.front().ids, " + "));
}

}  // namespace

PaddedBatch draw_padded(const BatchSizes& sizes, std::uint64_t seed) {
  NormalNumbers numbers(seed);
  const Extents<4> shape = {kSamples, sizes.heads, sizes.tokens, kHeadWidth};
  PaddedBatch batch{numbers.tensor<double, 4>(shape),
                    numbers.tensor<double, 4>(shape),
                    numbers.tensor<double, 4>(shape),
                    Tensor<bool, 2>({kSamples, sizes.tokens}),
                    sizes.heads,
                    sizes.tokens};
  for (Index t = 0; t < sizes.tokens; ++t) {
    batch.padding(0, t) = sizes.padded_left ? t < sizes.tokens - kValidTokens : t >= kValidTokens;
  }
  return batch;
}

Tensor<bool, 4> hides(const PaddedBatch& batch, PaddingForm form) {
  const Index tokens = batch.tokens;
  const Extents<4> shape = form == PaddingForm::Key    ? Extents<4>{kSamples, 1, 1, tokens}
                           : form == PaddingForm::Head ? Extents<4>{kSamples, tokens, 1, 1}
                                                       : Extents<4>{kSamples, 1, tokens, 1};
  Tensor<bool, 4> result(shape);
  std::ranges::copy(batch.padding.elements(), result.elements().begin());
  return result;
}

HandWrittenResults attend_padded(const PaddedBatch& batch, PaddingForm form, double fill,
                                 bool causal) {
  Tensor<bool, 4> flags = hides(batch, form);
  const Extents<4> scores = {kSamples, batch.heads, batch.tokens, batch.tokens};
  const auto whole = broadcast_shape(scores, flags.shape());
  if (causal && whole) {
    Tensor<bool, 4> both(*whole);
    bool* next = both.data();
    for (Index b = 0; b < kSamples; ++b) {
      for_each_cell((*whole)[1], batch.tokens, [&](Index h, Index t, Index s) {
        *next++ = s > t || broadcast_at(flags.view(), b, h, t, s);
      });
    }
    flags = std::move(both);
  }
  return attend_by_hand({.query = batch.query.view(),
                         .key = batch.key.view(),
                         .value = batch.value.view(),
                         .hides = std::as_const(flags).view(),
                         .fill = fill});
}

AttentionResults attend_padded(const PaddedBatch& batch, bool causal) {
  const Mask padding = Mask::key_padding(batch.padding.view(), Polarity::Drop);
  return attend({.query = batch.query.view(),
                 .key = batch.key.view(),
                 .value = batch.value.view(),
                 .mask = causal ? padding & Mask::causal() : padding});
}

HiddenCells hidden_cells(const PaddedBatch& batch, PaddingForm form) {
  const Tensor<bool, 4> flags = hides(batch, form);
  HiddenCells cells;
  std::vector<Index> of_head(static_cast<std::size_t>(batch.heads));
  std::vector<Index> of_row(static_cast<std::size_t>(batch.tokens));
  for_each_cell(batch.heads, batch.tokens, [&](Index h, Index t, Index s) {
    const bool is_hidden = broadcast_at(flags.view(), 0, h, t, s);
    const bool is_padding = batch.padding(0, s);
    cells.hidden += is_hidden ? 1 : 0;
    cells.valid_hidden += is_hidden && !is_padding ? 1 : 0;
    cells.padding_seen += !is_hidden && is_padding ? 1 : 0;
    of_head[static_cast<std::size_t>(h)] += is_hidden ? 1 : 0;
    of_row[static_cast<std::size_t>(t)] += is_hidden ? 1 : 0;
  });
  for (Index h = 0; h < batch.heads; ++h) {
    if (of_head[static_cast<std::size_t>(h)] == batch.tokens * batch.tokens) {
      cells.blind_heads.push_back(h);
    }
  }
  for (Index t = 0; t < batch.tokens; ++t) {
    if (of_row[static_cast<std::size_t>(t)] == batch.heads * batch.tokens) {
      cells.blind_rows.push_back(t);
    }
  }
  return cells;
}

PaddingOutcome outcome(const PaddedBatch& batch, PaddingForm form, double fill, bool causal) {
  const HandWrittenResults got = attend_padded(batch, form, fill, causal);
  const AttentionResults right = attend_padded(batch, causal);
  PaddingOutcome result;
  result.right_shape = got.weights.shape() == right.weights.shape();
  add_weights(batch, got.weights, result);
  const ContextGap first = context_gap(batch, 0, got.context, right.context);
  result.error = first.relative();
  result.nan_part = static_cast<double>(first.nans) / static_cast<double>(first.entries);
  result.full_sample_error = context_gap(batch, 1, got.context, right.context).relative();
  result.diagnosis = diagnosed(batch, got.context, causal);
  return result;
}

double error_without_mask(const PaddedBatch& batch, bool causal) {
  PaddedBatch unmasked = batch;
  std::ranges::fill(unmasked.padding.elements(), false);
  const AttentionResults right = attend_padded(batch, causal);
  return context_gap(batch, 0, attend_padded(unmasked, causal).context, right.context).relative();
}

}  // namespace qkv::lab
