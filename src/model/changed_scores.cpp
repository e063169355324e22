#include "model/changed_scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace qkv {
namespace {

constexpr const char* kOperation = "attention";

/// The entries of [T,S] that are normalised together.
struct Lines {
  Index count = 0;
  Index length = 0;
  Index line_step = 0;
  Index step = 0;
};

Lines lines_of(const ChangedAttention& options, const MaskShape& shape) {
  if (options.softmax_over_queries) return {shape.keys, shape.queries, 1, shape.keys};
  return {shape.queries, shape.keys, shape.keys, 1};
}

/// Zeros where all scores are −∞.
template <class T>
void softmax(T* scores, Index length, Index step) {
  T largest = -std::numeric_limits<T>::infinity();
  for (Index i = 0; i < length; ++i) largest = std::max(largest, scores[i * step]);
  if (largest == -std::numeric_limits<T>::infinity()) {
    for (Index i = 0; i < length; ++i) scores[i * step] = 0;
    return;
  }
  T sum = 0;
  for (Index i = 0; i < length; ++i) {
    scores[i * step] = std::exp(scores[i * step] - largest);
    sum += scores[i * step];
  }
  for (Index i = 0; i < length; ++i) scores[i * step] /= sum;
}

}  // namespace

ChangedMask::ChangedMask(const ChangedAttention& options, const MaskShape& shape,
                         const std::optional<Tensor<bool, 2>>& keep)
    : rules_(options.rules.bind(kOperation, shape)),
      padding_(options.padding),
      keep_(keep ? &*keep : nullptr) {
  if (keep_ != nullptr && padding_ == PaddingUse::FillHeads && shape.queries != shape.heads) {
    throw std::invalid_argument(fmt::format(
        "{}: padding [{},{},1,1]: expected as many tokens as there are heads, to broadcast onto "
        "scores {}, got {} tokens and {} heads",
        kOperation, shape.batch, shape.queries,
        to_string(Extents<4>{shape.batch, shape.heads, shape.queries, shape.keys}), shape.queries,
        shape.heads));
  }
}

bool ChangedMask::filled(Index b, Index h, Index t, Index s) const noexcept {
  if (keep_ == nullptr) return false;
  switch (padding_) {
    case PaddingUse::FillKeys:
      return !(*keep_)(b, s);
    case PaddingUse::FillQueries:
      return !(*keep_)(b, t);
    case PaddingUse::FillHeads:
      return !(*keep_)(b, h);
    default:
      return false;
  }
}

template <class T>
void weigh(const ChangedAttention& options, const ChangedMask& mask, const HeadIndex& at, T* scores,
           T* normalised) {
  const auto [batch, heads, queries, keys] = mask.shape();
  const bool late = options.masked == MaskedWhen::AfterSoftmax;
  const auto fill = static_cast<T>(options.fill);
  for (Index t = 0; t < queries; ++t) {
    for (Index s = 0; s < keys; ++s) {
      T& score = scores[t * keys + s];
      if (!late && mask.hidden(at.sample, at.head, t, s)) {
        score = -std::numeric_limits<T>::infinity();
      }
      if (mask.filled(at.sample, at.head, t, s)) score = fill;
    }
  }
  const Lines lines = lines_of(options, mask.shape());
  for (Index i = 0; i < lines.count; ++i) {
    softmax(scores + i * lines.line_step, lines.length, lines.step);
  }
  if (!late) return;
  std::copy_n(scores, queries * keys, normalised);
  for (Index t = 0; t < queries; ++t) {
    for (Index s = 0; s < keys; ++s) {
      if (mask.hidden(at.sample, at.head, t, s)) scores[t * keys + s] = 0;
    }
  }
}

// ds = p·(dp − Σ p·dp) along the line; a score that was overwritten has no derivative.
template <class T>
void weigh_backward(const ChangedAttention& options, const ChangedMask& mask, const HeadIndex& at,
                    const T* normalised, T* gradients) {
  const auto [batch, heads, queries, keys] = mask.shape();
  if (options.masked == MaskedWhen::AfterSoftmax) {
    for (Index t = 0; t < queries; ++t) {
      for (Index s = 0; s < keys; ++s) {
        if (mask.hidden(at.sample, at.head, t, s)) gradients[t * keys + s] = 0;
      }
    }
  }
  const Lines lines = lines_of(options, mask.shape());
  for (Index line = 0; line < lines.count; ++line) {
    const T* p = normalised + line * lines.line_step;
    T* dp = gradients + line * lines.line_step;
    T mean = 0;
    for (Index i = 0; i < lines.length; ++i) mean += p[i * lines.step] * dp[i * lines.step];
    for (Index i = 0; i < lines.length; ++i) {
      dp[i * lines.step] = p[i * lines.step] * (dp[i * lines.step] - mean);
    }
  }
  for (Index t = 0; t < queries; ++t) {
    for (Index s = 0; s < keys; ++s) {
      if (mask.filled(at.sample, at.head, t, s)) gradients[t * keys + s] = 0;
    }
  }
}

template void weigh(const ChangedAttention&, const ChangedMask&, const HeadIndex&, double*,
                    double*);
template void weigh_backward(const ChangedAttention&, const ChangedMask&, const HeadIndex&,
                             const double*, double*);
template void weigh(const ChangedAttention&, const ChangedMask&, const HeadIndex&, float*, float*);
template void weigh_backward(const ChangedAttention&, const ChangedMask&, const HeadIndex&,
                             const float*, float*);

}  // namespace qkv
