#include "lab/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lab/text_style.h"

namespace qkv::lab {
namespace {

Index bin_size(Index count, Index most) { return std::max<Index>(1, (count + most - 1) / most); }

HeatCell bin_cell(const Trace& trace, const HeatMapOptions& options, const HeatMap& map, Index row,
                  Index column) {
  HeatCell cell;
  double total = 0;
  Index count = 0;
  const Index end_query = std::min((row + 1) * map.row_bin, trace.sizes.queries);
  const Index end_key = std::min((column + 1) * map.column_bin, trace.sizes.keys);
  for (Index t = row * map.row_bin; t < end_query; ++t) {
    for (Index s = column * map.column_bin; s < end_key; ++s) {
      if (!trace.mask.bound.visible(options.sample, options.head, t, s)) continue;
      const double weight = trace.weights(options.sample, options.head, t, s);
      cell.hidden = false;
      total += weight;
      ++count;
      if (std::isnan(weight) || weight > cell.weight) cell.weight = weight;
      if (std::isnan(cell.weight)) return cell;
    }
  }
  if (options.binning == Binning::Mean && count > 0)
    cell.weight = total / static_cast<double>(count);
  return cell;
}

std::string label(const Trace& trace, Index sample, Index index, Index bin, Index count) {
  if (bin > 1) return fmt::format("{}–{}", index * bin, std::min((index + 1) * bin, count) - 1);
  const std::size_t digits = fmt::formatted_size("{}", count - 1);
  std::string text = fmt::format("{:>{}}", index, digits);
  if (!trace.self_attention) return text;
  const auto b = static_cast<std::size_t>(sample);
  const auto t = static_cast<std::size_t>(index);
  if (b < trace.tokens.size() && t < trace.tokens[b].size()) {
    return text + " " + token_label(trace.tokens[b][t]);
  }
  if (trace.padded_queries && (*trace.padded_queries)(sample, index)) text += " (pad)";
  return text;
}

}  // namespace

HeatMap heat_map(const Trace& trace, const HeatMapOptions& options) {
  HeatMap map;
  map.row_bin = bin_size(trace.sizes.queries, options.most_rows);
  map.column_bin = bin_size(trace.sizes.keys, options.most_columns);
  map.rows = (trace.sizes.queries + map.row_bin - 1) / map.row_bin;
  map.columns = (trace.sizes.keys + map.column_bin - 1) / map.column_bin;
  for (Index row = 0; row < map.rows; ++row) {
    for (Index column = 0; column < map.columns; ++column) {
      map.cells.push_back(bin_cell(trace, options, map, row, column));
      const double weight = map.cells.back().weight;
      if (weight > map.largest) map.largest = weight;  // false for NaN
    }
  }
  return map;
}

std::string query_label(const Trace& trace, Index sample, Index index, Index bin) {
  return label(trace, sample, index, bin, trace.sizes.queries);
}

std::string key_label(const Trace& trace, Index sample, Index index, Index bin) {
  return label(trace, sample, index, bin, trace.sizes.keys);
}

}  // namespace qkv::lab
