#include "check/where.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

namespace qkv {
namespace {

std::vector<Index> sorted(const std::set<Index>& indices) {
  return {indices.begin(), indices.end()};
}

std::vector<Index> all(Index extent) {
  std::vector<Index> indices(static_cast<std::size_t>(extent));
  for (Index i = 0; i < extent; ++i) indices[static_cast<std::size_t>(i)] = i;
  return indices;
}

/// The parts along one axis; every index where none of them is wrong.
std::vector<Index> along(const TensorVerdict& tensor, std::string_view axis, Index extent) {
  std::set<Index> indices;
  for (const WrongPart& part : tensor.wrong_parts) {
    if (part.axis != axis) continue;
    for (Index i = part.begin; i < part.end; ++i) indices.insert(i);
  }
  return indices.empty() ? all(extent) : sorted(indices);
}

std::string axis_text(std::string_view name, const std::vector<Index>& indices, Index extent) {
  if (static_cast<Index>(indices.size()) == extent) return fmt::format("every {}", name);
  return fmt::format("{}{} {} of {}", name, indices.size() == 1 ? "" : "s", ranges(indices),
                     extent);
}

Index ceiling(Index a, Index b) { return (a + b - 1) / b; }

/// Of more lines than fit those that hold an error beyond its bound, as far as they fit.
void keep_the_wrong(ErrorMap& map, double allowed, std::size_t most_lines) {
  if (map.lines.size() <= most_lines) return;
  const auto is_wrong = [allowed](const std::vector<MapCell>& line) {
    return std::any_of(line.begin(), line.end(),
                       [allowed](const MapCell& cell) { return cell.units > allowed; });
  };
  const bool any = std::any_of(map.lines.begin(), map.lines.end(), is_wrong);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < map.lines.size() && kept < most_lines; ++i) {
    if (any && !is_wrong(map.lines[i])) continue;
    if (i != kept) {
      map.lines[kept] = std::move(map.lines[i]);
      map.labels[kept] = std::move(map.labels[i]);
    }
    ++kept;
  }
  map.left_out = static_cast<Index>(map.lines.size() - kept);
  map.lines.resize(kept);
  map.labels.resize(kept);
}

}  // namespace

Where where_of(const TensorVerdict& tensor) {
  const auto& units = tensor.map.units;
  Where where;
  where.shape = units.shape();
  if (tensor.name == "weights" || tensor.name == "scores") where.column_name = "key";
  if (tensor.beyond == 0) {
    where.samples = along(tensor, "sample", units.shape(0));
    where.heads = along(tensor, "head", units.shape(1));
    where.rows = along(tensor, "row block", units.shape(2));
    where.columns = along(tensor, "column", units.shape(3));
    return where;
  }
  std::array<std::set<Index>, 4> found;
  for (Index b = 0; b < units.shape(0); ++b) {
    for (Index h = 0; h < units.shape(1); ++h) {
      for (Index t = 0; t < units.shape(2); ++t) {
        for (Index d = 0; d < units.shape(3); ++d) {
          if (!(static_cast<double>(units(b, h, t, d)) > tensor.largest_allowed)) continue;
          found[0].insert(b);
          found[1].insert(h);
          found[2].insert(t);
          found[3].insert(d);
        }
      }
    }
  }
  where.samples = sorted(found[0]);
  where.heads = sorted(found[1]);
  where.rows = sorted(found[2]);
  where.columns = sorted(found[3]);
  return where;
}

std::string ranges(const std::vector<Index>& indices) {
  constexpr std::size_t kMost = 8;
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < indices.size();) {
    std::size_t end = i + 1;
    while (end < indices.size() && indices[end] == indices[end - 1] + 1) ++end;
    texts.push_back(end - i == 1 ? fmt::format("{}", indices[i])
                                 : fmt::format("{}–{}", indices[i], indices[end - 1]));
    i = end;
  }
  const bool cut = texts.size() > kMost;
  if (cut) texts.resize(kMost);
  return fmt::format("{}{}", fmt::join(texts, ", "), cut ? ", …" : "");
}

std::string describe(const Where& where) {
  std::vector<std::string> texts;
  const auto add = [&](std::string_view name, const std::vector<Index>& indices, int axis) {
    const Index extent = where.shape[static_cast<std::size_t>(axis)];
    if (extent > 1) texts.push_back(axis_text(name, indices, extent));
  };
  add("sample", where.samples, 0);
  add("head", where.heads, 1);
  add("row", where.rows, 2);
  add(where.column_name, where.columns, 3);
  return texts.empty() ? "its one element" : fmt::format("{}", fmt::join(texts, ", "));
}

ErrorMap error_map(const TensorVerdict& tensor, Index most_lines, Index most_cells) {
  const auto& units = tensor.map.units;
  const auto [batch, heads, rows, width] = units.shape();
  ErrorMap map;
  if (batch * heads * rows * width == 0) return map;
  map.rows_per_cell = ceiling(rows, most_cells);
  const bool merged = heads == 1 && width > 1;
  Index bands = 1;
  if (merged) {
    map.columns_per_line = ceiling(width, std::clamp<Index>(most_lines / batch, 1, 16));
    bands = ceiling(width, map.columns_per_line);
  }
  for (Index b = 0; b < batch; ++b) {
    for (Index h = 0; h < heads; ++h) {
      for (Index band = 0; band < bands; ++band) {
        const Index begin = band * map.columns_per_line;
        const Index end = merged ? std::min(width, begin + map.columns_per_line) : width;
        std::string label = batch > 1 ? fmt::format("sample {} ", b) : "";
        label += merged ? fmt::format("columns {}–{}", begin, end - 1) : fmt::format("head {}", h);
        map.labels.push_back(label);
        std::vector<MapCell> cells(static_cast<std::size_t>(ceiling(rows, map.rows_per_cell)));
        for (Index t = 0; t < rows; ++t) {
          double& cell = cells[static_cast<std::size_t>(t / map.rows_per_cell)].units;
          for (Index d = begin; d < end; ++d) {
            cell = std::max(cell, static_cast<double>(units(b, h, t, d)));
          }
        }
        map.lines.push_back(std::move(cells));
      }
    }
  }
  keep_the_wrong(map, tensor.largest_allowed, static_cast<std::size_t>(most_lines));
  return map;
}

}  // namespace qkv
