#include "lab/trace_compare.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>
#include <string>

namespace qkv::lab {
namespace {

double difference(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  return std::abs(a - b);  // NaN where one is
}

bool sees_a_key(const Trace& trace, Index b, Index t) {
  for (Index h = 0; h < trace.sizes.heads; ++h) {
    if (!trace.mask.bound.row_sees_a_key(b, h, t)) return false;
  }
  return true;
}

/// Compares [B,H,T,D], leaving out rows [b,:,t,:] for which `counts` is false.
template <class Counts>
Comparison compare_heads(const std::string& name, const TensorView<const double, 4>& ours,
                         const TensorView<const double, 4>& theirs, Counts counts) {
  if (ours.shape() != theirs.shape()) {
    throw std::invalid_argument(fmt::format("trace: {}: expected {}, got {}", name,
                                            to_string(ours.shape()), to_string(theirs.shape())));
  }
  const auto [batch, heads, rows, width] = ours.shape();
  Comparison result;
  result.tensor = name;
  for (Index b = 0; b < batch; ++b) {
    for (Index t = 0; t < rows; ++t) {
      if (!counts(b, t)) {
        result.left_out += heads * width;
        continue;
      }
      result.compared += heads * width;
      for (Index h = 0; h < heads; ++h) {
        for (Index d = 0; d < width; ++d) {
          const double found = difference(ours(b, h, t, d), theirs(b, h, t, d));
          if (std::isnan(found) || found > result.largest_difference) {
            result.largest_difference = found;
          }
          if (std::isnan(result.largest_difference)) return result;
        }
      }
    }
  }
  result.within_tolerance = result.largest_difference <= kRecordedTolerance;
  return result;
}

}  // namespace

std::vector<Comparison> compare(const Trace& trace, const Recorded& recorded,
                                const std::optional<BeforeRotary>& before_rotary) {
  const auto everywhere = [](Index, Index) { return true; };
  const auto where_seen = [&](Index b, Index t) { return sees_a_key(trace, b, t); };
  std::vector<Comparison> result;
  const auto add = [&](const std::string& name, const TensorView<const double, 4>& ours,
                       const std::optional<Tensor<double, 4>>& theirs) {
    if (theirs) result.push_back(compare_heads(name, ours, theirs->view(), everywhere));
  };
  if (before_rotary) {
    add("q_before_rope", before_rotary->query, recorded.query_before_rotary);
    add("k_before_rope", before_rotary->key, recorded.key_before_rotary);
    add("q", trace.query.view(), recorded.query);
    add("k", trace.key.view(), recorded.key);
    add("v", trace.value.view(), recorded.value);
  }
  if (recorded.weights) {
    result.push_back(
        compare_heads("weights", trace.weights.view(), recorded.weights->view(), where_seen));
  }
  if (recorded.context) {
    result.push_back(compare_heads("context", split_heads(trace.merged.view(), 1),
                                   split_heads(recorded.context->view(), 1), where_seen));
  }
  if (recorded.output && trace.output) {
    result.push_back(compare_heads("out", split_heads(trace.output->view(), 1),
                                   split_heads(recorded.output->view(), 1), where_seen));
  }
  return result;
}

}  // namespace qkv::lab
