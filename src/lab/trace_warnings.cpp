#include "lab/trace_warnings.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <string>

namespace qkv::lab {
namespace {

/// Weights are float64 here; a model's own may be float32.
constexpr double kSumTolerance = 1e-9;
constexpr double kRecordedSumTolerance = 1e-5;
constexpr Index kSamplesListed = 4;

/// "0–14, 20" of the indices below `count` that are chosen; empty where none is.
std::string ranges(Index count, const std::function<bool(Index)>& chosen) {
  std::string text;
  for (Index begin = 0; begin < count;) {
    if (!chosen(begin)) {
      ++begin;
      continue;
    }
    Index end = begin + 1;
    while (end < count && chosen(end)) ++end;
    if (!text.empty()) text += ", ";
    text += end == begin + 1 ? fmt::format("{}", begin) : fmt::format("{}–{}", begin, end - 1);
    begin = end;
  }
  return text;
}

/// "sample 1: queries 0–14; sample 3: query 2" of the rows that are chosen; empty where none is.
std::string list_rows(const MaskShape& sizes, const std::function<bool(Index, Index)>& chosen) {
  std::string text;
  Index listed = 0;
  for (Index b = 0; b < sizes.batch; ++b) {
    const std::string queries = ranges(sizes.queries, [&](Index t) { return chosen(b, t); });
    if (queries.empty()) continue;
    if (listed++ == kSamplesListed) return text + "; and more samples";
    const bool one = queries.find_first_not_of("0123456789") == std::string::npos;
    text += fmt::format("{}sample {}: {} {}", text.empty() ? "" : "; ", b,
                        one ? "query" : "queries", queries);
  }
  return text;
}

bool sees_nothing_in_some_head(const Trace& trace, Index b, Index t) {
  for (Index h = 0; h < trace.sizes.heads; ++h) {
    if (!trace.mask.bound.row_sees_a_key(b, h, t)) return true;
  }
  return false;
}

void warn_of_blind_rows(const Trace& trace, std::vector<Warning>& warnings) {
  const std::string rows = list_rows(
      trace.sizes, [&](Index b, Index t) { return sees_nothing_in_some_head(trace, b, t); });
  if (rows.empty()) return;
  warnings.push_back({"row-sees-nothing",
                      fmt::format("rows that see no key ({}): their softmax has nothing to "
                                  "normalise. Here their weights and context are 0 and their "
                                  "log-sum-exp is -∞; PyTorch gives NaN for them, or a uniform "
                                  "mean where -∞ is a large finite number.",
                                  rows)});
}

void warn_of_padded_queries(const Trace& trace, std::vector<Warning>& warnings) {
  if (!trace.padded_queries) return;
  const std::string rows = list_rows(trace.sizes, [&](Index b, Index t) {
    return (*trace.padded_queries)(b, t) && !sees_nothing_in_some_head(trace, b, t);
  });
  if (rows.empty()) return;
  warnings.push_back({"padded-queries-computed",
                      fmt::format("padded queries are computed all the same ({}): the padding mask "
                                  "hides keys, not queries. Leave their rows out of losses, means "
                                  "and heat maps.",
                                  rows)});
}

void warn_of_equal_axes(const Trace& trace, std::vector<Warning>& warnings) {
  const auto [batch, heads, queries, keys] = trace.sizes;
  const auto warn = [&](std::string text) {
    warnings.push_back({"mask-axis-ambiguous", std::move(text)});
  };
  if (batch > 1 && batch == queries) {
    warn(
        fmt::format("B = T = {}: a padding mask [B,S] that is not made [B,1,1,S] broadcasts as "
                    "[T,S] without an error and hides keys by query instead of by sample.",
                    batch));
  }
  if (heads > 1 && heads == queries) {
    warn(
        fmt::format("H = T = {}: a mask [T,S] that is given as [T,1,S] broadcasts as [H,1,S] "
                    "without an error and hides keys by head instead of by query.",
                    heads));
  }
}

struct SumCheck {
  std::string_view whose;
  double tolerance;
};

void warn_of_sums(const Trace& trace, const Tensor<double, 4>& weights, const SumCheck& check,
                  std::vector<Warning>& warnings) {
  const auto [batch, heads, queries, keys] = trace.sizes;
  Index wrong = 0;
  std::string first;
  for (Index b = 0; b < batch; ++b) {
    for (Index h = 0; h < heads; ++h) {
      for (Index t = 0; t < queries; ++t) {
        if (!trace.mask.bound.row_sees_a_key(b, h, t)) continue;
        double sum = 0;
        for (Index s = 0; s < keys; ++s) sum += weights(b, h, t, s);
        if (std::abs(sum - 1) <= check.tolerance) continue;  // false for NaN
        if (wrong++ == 0) {
          first = fmt::format("sample {}, head {}, query {} sums to {:.7g}", b, h, t, sum);
        }
      }
    }
  }
  if (wrong == 0) return;
  warnings.push_back({"weights-do-not-sum-to-one",
                      fmt::format("{} rows of {} weights do not sum to 1 (the first: {}).", wrong,
                                  check.whose, first)});
}

}  // namespace

std::vector<Warning> find_warnings(const Trace& trace, const Recorded& recorded) {
  std::vector<Warning> warnings;
  warn_of_blind_rows(trace, warnings);
  warn_of_padded_queries(trace, warnings);
  warn_of_equal_axes(trace, warnings);
  warn_of_sums(trace, trace.weights, {"the computed", kSumTolerance}, warnings);
  if (recorded.weights) {
    warn_of_sums(trace, *recorded.weights, {"the recorded", kRecordedSumTolerance}, warnings);
  }
  return warnings;
}

}  // namespace qkv::lab
