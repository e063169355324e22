#include "lab/mask_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "lab/trace_mask.h"

namespace qkv::lab {
namespace {

constexpr Index kHeadRows = 5;
constexpr Index kTailRows = 3;
constexpr Index kHeadColumns = 10;
constexpr Index kTailColumns = 5;

/// Indices to show; nothing marks what is left out.
std::vector<std::optional<Index>> shown(Index count, Index head, Index tail) {
  std::vector<std::optional<Index>> result;
  for (Index i = 0; i < count; ++i) {
    if (count <= head + tail || i < head || i >= count - tail) {
      result.emplace_back(i);
    } else if (i == head) {
      result.emplace_back(std::nullopt);
    }
  }
  return result;
}

bool empty(const MaskShape& shape) {
  return shape.batch == 0 || shape.heads == 0 || shape.queries == 0 || shape.keys == 0;
}

std::vector<std::string> draw(const MaskTrace& mask, Index sample, Index head) {
  const MaskShape& sizes = mask.bound.shape();
  const Index samples = mask.shape[0];
  if (mask.shape[2] == 1) {  // every query sees the same keys: a row a sample says it all
    return draw_matrix(samples, mask.shape[3], [&](Index b, Index s) {
      return additive(mask, samples == 1 ? sample : b, head, 0, s);
    });
  }
  return draw_matrix(sizes.queries, mask.shape[3],
                     [&](Index t, Index s) { return additive(mask, sample, head, t, s); });
}

std::string what_rows_are(const MaskTrace& mask, Index sample, Index head) {
  if (mask.shape[2] == 1) return mask.shape[0] > 1 ? "one row a sample" : "one row for all";
  std::string text = "one row a query";
  if (mask.shape[0] > 1) text += fmt::format(", sample {}", sample);
  if (mask.shape[1] > 1) text += fmt::format(", head {}", head);
  return text;
}

void append_mask(const MaskTrace& mask, Index sample, Index head, const TextStyle& style,
                 std::vector<std::string>& lines) {
  const MaskShape& sizes = mask.bound.shape();
  const Extents<4> full{sizes.batch, sizes.heads, sizes.queries, sizes.keys};
  lines.push_back(fmt::format("  {}  {}", bold(style, mask.rule), to_string(mask.shape)));
  lines.push_back(fmt::format("    broadcast to {} with strides {}: {}", to_string(full),
                              to_string(mask.strides), describe_repeats(mask)));
  if (empty(sizes)) return;
  lines.push_back(fmt::format("    {}:", dim(style, what_rows_are(mask, sample, head))));
  for (const std::string& line : draw(mask, sample, head)) lines.push_back("      " + line);
}

}  // namespace

std::vector<std::string> draw_matrix(Index rows, Index columns,
                                     const std::function<double(Index, Index)>& value) {
  const auto row_indices = shown(rows, kHeadRows, kTailRows);
  const auto column_indices = shown(columns, kHeadColumns, kTailColumns);
  if (row_indices.empty() || column_indices.empty()) return {"[]"};

  std::vector<std::vector<std::string>> cells;
  std::vector<std::size_t> widths(column_indices.size(), 1);
  for (const auto& row : row_indices) {
    std::vector<std::string>& line = cells.emplace_back();
    if (!row) continue;
    for (std::size_t c = 0; c < column_indices.size(); ++c) {
      const auto& column = column_indices[c];
      line.push_back(column ? short_number(value(*row, *column)) : "…");
      widths[c] = std::max(widths[c], display_width(line.back()));
    }
  }
  std::vector<std::string> lines;
  for (std::size_t r = 0; r < cells.size(); ++r) {
    std::string line = r == 0 ? "[" : " ";
    if (!row_indices[r]) {
      lines.push_back(line + "…");
      continue;
    }
    for (std::size_t c = 0; c < cells[r].size(); ++c) {
      line += (c == 0 ? "[" : ", ") + pad_left(cells[r][c], widths[c]);
    }
    lines.push_back(line + (r + 1 == cells.size() ? "]]" : "],"));
  }
  return lines;
}

std::string describe_repeats(const MaskTrace& mask) {
  constexpr std::array<std::string_view, 4> kAxes = {"B", "H", "T", "S"};
  std::vector<std::string_view> axes;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (mask.strides[axis] == 0) axes.push_back(kAxes[axis]);
  }
  if (axes.empty()) return "no axis repeats";
  std::string text = "stride 0 on ";
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (i > 0) text += i + 1 == axes.size() ? " and " : ", ";
    text += axes[i];
  }
  return text;
}

std::vector<std::string> mask_text(const Trace& trace, Index sample, Index head,
                                   const TextStyle& style) {
  if (trace.masks.empty()) return {"  none: M = 0, every query sees every key"};
  std::vector<std::string> lines;
  for (const MaskTrace& rule : trace.masks) append_mask(rule, sample, head, style, lines);
  if (trace.masks.size() > 1) {
    MaskTrace all = trace.mask;
    all.rule = "all of them";
    append_mask(all, sample, head, style, lines);
  }
  return lines;
}

}  // namespace qkv::lab
