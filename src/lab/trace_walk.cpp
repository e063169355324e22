#include "lab/trace_walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string_view>

namespace qkv::lab {
namespace {

void check_index(std::string_view option, Index index, Index count) {
  if (index >= 0 && index < count) return;
  throw std::invalid_argument(
      fmt::format("trace: {}: expected an index from 0 below {}, got {}", option, count, index));
}

std::vector<double> row_of(const Tensor<double, 4>& tensor, const RowChoice& row, Index head) {
  std::vector<double> result;
  for (Index d = 0; d < tensor.shape(3); ++d) {
    result.push_back(tensor(row.sample, head, row.query, d));
  }
  return result;
}

double bias_at(const Tensor<double, 4>& bias, const RowChoice& row, Index key) {
  const auto at = [&](int axis, Index index) { return bias.shape(axis) == 1 ? 0 : index; };
  return bias(at(0, row.sample), at(1, row.head), at(2, row.query), at(3, key));
}

/// Step 1 for one key: how well does it fit the query?
void match(const Trace& trace, const Walk& walk, const RowChoice& row, WalkKey& entry, Index key) {
  for (std::size_t d = 0; d < entry.key.size(); ++d) {
    entry.products.push_back(walk.query[d] * entry.key[d]);
    entry.dot += entry.products.back();
  }
  entry.scaled = walk.scale * entry.dot;
  if (trace.bias) entry.bias = bias_at(*trace.bias, row, key);
  entry.visible = trace.mask.bound.visible(row.sample, row.head, row.query, key) &&
                  entry.bias != -std::numeric_limits<double>::infinity();
}

/// Step 1 for the row: scores become weights that sum to 1.
void normalise(Walk& walk) {
  for (const WalkKey& entry : walk.keys) {
    if (!entry.visible) continue;
    const double score = entry.scaled + entry.bias;
    walk.largest = walk.largest ? std::max(*walk.largest, score) : score;
  }
  for (WalkKey& entry : walk.keys) {
    if (!entry.visible) continue;
    entry.exponential = std::exp(entry.scaled + entry.bias - *walk.largest);
    walk.sum += entry.exponential;
  }
  for (WalkKey& entry : walk.keys) {
    if (entry.visible) entry.weight = entry.exponential / walk.sum;
  }
}

/// Step 2: the weighted sum of the values.
void aggregate(Walk& walk, std::size_t width) {
  walk.context.assign(width, 0);
  for (WalkKey& entry : walk.keys) {
    for (std::size_t d = 0; d < width; ++d) {
      // What is hidden gives nothing, even where its value is no number.
      entry.contribution.push_back(entry.visible ? entry.weight * entry.value[d] : 0);
      walk.context[d] += entry.contribution[d];
    }
  }
}

}  // namespace

Walk walk(const Trace& trace, const RowChoice& row) {
  check_index("--sample", row.sample, trace.sizes.batch);
  check_index("--head", row.head, trace.sizes.heads);
  check_index("--query", row.query, trace.sizes.queries);
  const Index kv_head = row.head / (trace.sizes.heads / trace.kv_heads);
  Walk result;
  result.sample = row.sample;
  result.head = row.head;
  result.query_token = row.query;
  result.query = row_of(trace.query, row, row.head);
  result.scale = trace.scale;
  result.has_bias = trace.bias.has_value();
  for (Index s = 0; s < trace.sizes.keys; ++s) {
    WalkKey entry;
    entry.key = row_of(trace.key, {row.sample, row.head, s}, kv_head);
    entry.value = row_of(trace.value, {row.sample, row.head, s}, kv_head);
    match(trace, result, row, entry, s);
    result.keys.push_back(std::move(entry));
  }
  normalise(result);
  aggregate(result, static_cast<std::size_t>(trace.value_head_width));
  return result;
}

}  // namespace qkv::lab
