#include "lab/experiment_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <stdexcept>
#include <utility>

namespace qkv::lab {
namespace {

/// "padding: table cells"
using Place = std::string;

void expect_size(const Place& place, std::string_view what, std::size_t expected, std::size_t got) {
  if (got == expected) return;
  throw std::logic_error(
      fmt::format("lab: {}: {}: expected {}, got {}", place, what, expected, got));
}

void check(const Place& place, const Table& table) {
  for (const std::vector<Cell>& row : table.rows) {
    expect_size(place, "cells of a row", table.columns.size(), row.size());
  }
}

void check(const Place& place, const Chart& chart) {
  for (const Series& series : chart.series) {
    const Place of_series = fmt::format("{}: series {}", place, series.name.english);
    expect_size(of_series, "y", series.x.size(), series.y.size());
    expect_size(of_series, "high", series.low.size(), series.high.size());
    if (!series.low.empty()) expect_size(of_series, "low", series.x.size(), series.low.size());
  }
}

void check(const Place& place, const HeatMaps& maps) {
  if (maps.variants.empty()) throw std::logic_error(fmt::format("lab: {}: no variant", place));
  const Extents<5>& shape = maps.variants.front().values.shape();
  for (const HeatMapVariant& variant : maps.variants) {
    if (variant.values.shape() != shape) {
      throw std::logic_error(fmt::format("lab: {}: variants of different sizes", place));
    }
    if (variant.seen.elements().empty()) continue;
    for (std::size_t axis = 0; axis < 5; ++axis) {
      const Index size = variant.seen.shape()[axis];
      if (size == 1 || size == shape[axis]) continue;
      throw std::logic_error(fmt::format("lab: {}: seen: axis {}: expected 1 or {}, got {}", place,
                                         axis, shape[axis], size));
    }
  }
  const std::array<std::pair<Index, Index>, 3> places = {std::pair{maps.start.layer, shape[0]},
                                                         std::pair{maps.start.sample, shape[1]},
                                                         std::pair{maps.start.head, shape[2]}};
  const auto variants = static_cast<Index>(maps.variants.size());
  const bool starts = std::ranges::all_of(
      places, [](const auto& one) { return one.first >= 0 && one.first < one.second; });
  if (!starts || maps.start.shown >= variants || (variants > 1 && maps.start.beside >= variants)) {
    throw std::logic_error(fmt::format("lab: {}: start: not there", place));
  }
  const auto check_labels = [&](const std::vector<std::string>& labels, std::size_t axis) {
    if (labels.empty()) return;
    expect_size(place, "labels", static_cast<std::size_t>(shape[axis]), labels.size());
  };
  check_labels(maps.query_labels, 3);
  check_labels(maps.key_labels, 4);
}

void check(const Place& place, const TokenMaps& maps) {
  if (maps.methods.empty()) throw std::logic_error(fmt::format("lab: {}: no method", place));
  for (const TokenScores& method : maps.methods) {
    expect_size(fmt::format("{}: {}", place, method.name.english), "scores", maps.tokens.size(),
                method.scores.size());
  }
}

/// Of one kind: keys may be those of other kinds.
template <class Parts>
void check_parts(const Experiment& experiment, std::string_view kind, const Parts& parts) {
  std::set<std::string> keys;
  for (const auto& part : parts) {
    const Place place = fmt::format("{}: {} {}", experiment.name, kind, part.key);
    if (!keys.insert(part.key).second) {
      throw std::logic_error(fmt::format("lab: {}: a second one of that key", place));
    }
    if constexpr (requires { check(place, part); }) check(place, part);
  }
}

}  // namespace

void check_experiment(const Experiment& experiment) {
  check_parts(experiment, "table", experiment.tables);
  check_parts(experiment, "chart", experiment.charts);
  check_parts(experiment, "heat maps", experiment.heat_maps);
  check_parts(experiment, "token maps", experiment.token_maps);
  check_parts(experiment, "effect", experiment.effects);
}

}  // namespace qkv::lab
