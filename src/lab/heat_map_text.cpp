#include "lab/heat_map_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace qkv::lab {
namespace {

constexpr std::size_t kMostLabelColumns = 14;
constexpr std::size_t kBetweenHeads = 3;
constexpr Index kMostNumbered = 8;  // rows and columns of a map that shows its numbers
constexpr std::size_t kNumberedCell = 6;

constexpr std::array<std::string_view, 5> kShades = {" ", "░", "▒", "▓", "█"};
// Dark to bright in the terminal's 256 colours, brightness rising in even steps.
constexpr std::array<int, 10> kColors = {233, 53, 90, 126, 162, 203, 209, 215, 222, 230};
constexpr std::size_t kFirstBright = 5;  // from here on, black is easier to read on it than white

/// In even steps from 0 to levels − 1.
std::size_t color_level(double weight, double largest) {
  constexpr std::size_t kTop = kColors.size() - 1;
  if (!(largest > 0)) return 0;
  const long level = std::lround(weight / largest * static_cast<double>(kTop));
  return std::min(static_cast<std::size_t>(std::max(level, 0L)), kTop);
}

/// Blank for next to nothing, then a shade a quarter of the largest weight.
std::string_view shade_of(double weight, double largest) {
  constexpr double kNextToNothing = 0.05;
  if (!(weight > kNextToNothing * largest)) return kShades[0];
  const auto quarter = static_cast<std::size_t>(std::ceil(weight / largest * 4));
  return kShades[std::min(quarter, kShades.size() - 1)];
}

/// How the maps of one picture are laid out; the same for every head.
struct Frame {
  std::size_t label = 0;  ///< columns for the queries' labels
  std::size_t cell = 1;   ///< columns a cell
  bool numbers = false;
  std::size_t block = 0;  ///< columns a head
  std::size_t heads = 1;  ///< side by side
};

std::string repeat(std::string_view text, std::size_t times) {
  std::string result;
  for (std::size_t i = 0; i < times; ++i) result += text;
  return result;
}

std::string cell_text(const HeatCell& cell, double largest, const Frame& frame,
                      const TextStyle& style) {
  if (cell.hidden) {
    const std::string dots = frame.numbers ? pad_right("  ·", frame.cell) : repeat("·", frame.cell);
    return dim(style, dots);
  }
  if (std::isnan(cell.weight)) {
    return bad(style, frame.numbers ? pad_right(" NaN", frame.cell) : repeat("!", frame.cell));
  }
  if (style.color) {
    const std::size_t level = color_level(cell.weight, largest);
    const std::string text =
        frame.numbers ? fmt::format(" {:.2f} ", cell.weight) : std::string(frame.cell, ' ');
    return fmt::format("\x1b[{};48;5;{}m{}\x1b[0m", level >= kFirstBright ? 30 : 97, kColors[level],
                       text);
  }
  const std::string_view shade = shade_of(cell.weight, largest);
  return frame.numbers ? fmt::format("{}{:.2f} ", shade, cell.weight) : repeat(shade, frame.cell);
}

/// Numbers of the keys above the columns, as many as have room.
std::string ruler(const HeatMap& map, const Frame& frame) {
  const std::size_t digits = fmt::format("{}", map.columns * map.column_bin).size();
  Index step = 1;
  for (const Index candidate : {1, 2, 5, 10, 20, 50}) {
    step = candidate;
    if (static_cast<std::size_t>(candidate) * frame.cell > digits) break;
  }
  std::string text;
  for (Index column = 0; column < map.columns; column += step) {
    const std::size_t at = static_cast<std::size_t>(column) * frame.cell + (frame.numbers ? 2 : 0);
    const std::string number = fmt::format("{}", column * map.column_bin);
    if (at + number.size() > frame.block) continue;
    text = pad_right(std::move(text), at);
    text += number;
  }
  return pad_right(std::move(text), frame.block);
}

std::vector<std::string> block_lines(const HeatMap& map, Index head, const Frame& frame,
                                     const TextStyle& style) {
  const std::string title =
      clip(fmt::format("head {}  max {:.2f}", head, map.largest), frame.block);
  std::vector<std::string> lines = {bold(style, pad_right(title, frame.block)),
                                    dim(style, ruler(map, frame))};
  const std::size_t used = static_cast<std::size_t>(map.columns) * frame.cell;
  for (Index row = 0; row < map.rows; ++row) {
    std::string line;
    for (Index column = 0; column < map.columns; ++column) {
      line += cell_text(map.at(row, column), map.largest, frame, style);
    }
    lines.push_back(line + std::string(frame.block - used, ' '));
  }
  return lines;
}

Frame make_frame(const HeatMap& map, const std::vector<std::string>& labels, std::size_t heads,
                 const TextStyle& style) {
  Frame frame;
  for (const std::string& label : labels) {
    frame.label = std::max(frame.label, display_width(label));
  }
  frame.label = std::min(frame.label, kMostLabelColumns);
  const std::size_t room = style.width - std::min(style.width, frame.label + 4);
  frame.numbers = map.row_bin == 1 && map.column_bin == 1 && map.rows <= kMostNumbered &&
                  map.columns <= kMostNumbered;
  const auto columns = static_cast<std::size_t>(map.columns);
  if (frame.numbers) {
    frame.cell = kNumberedCell;
  } else if (heads == 1 && columns * 2 <= room) {
    frame.cell = 2;  // cells about as wide as high
  }
  constexpr std::size_t kTitle = 17;  // "head 12  max 0.83"
  frame.block = std::max(columns * frame.cell, kTitle);
  frame.heads = std::max<std::size_t>(1, (room + kBetweenHeads) / (frame.block + kBetweenHeads));
  return frame;
}

std::vector<std::string> legend(const HeatMap& map, const HeatTextOptions& options,
                                const TextStyle& style) {
  std::string scale = "  blank: up to 5 % of the head's largest weight; ░ ▒ ▓ █: a quarter each";
  if (style.color) {
    scale = "  0 ";
    for (const int color : kColors) scale += fmt::format("\x1b[48;5;{}m  \x1b[0m", color);
    scale += " the head's largest weight";
  }
  scale += "; ·: hidden by the mask";
  const bool has_nan = std::any_of(map.cells.begin(), map.cells.end(),
                                   [](const HeatCell& cell) { return std::isnan(cell.weight); });
  if (has_nan) scale += "; !: NaN";
  std::vector<std::string> lines = {"  Rows are queries, columns are keys.", scale};
  if (map.row_bin > 1 || map.column_bin > 1) {
    lines[0] += fmt::format(" Each cell is the {} of up to {} × {} weights.",
                            options.binning == Binning::Max ? "largest" : "mean", map.row_bin,
                            map.column_bin);
  }
  return lines;
}

}  // namespace

std::vector<std::string> heat_map_text(const Trace& trace, const HeatTextOptions& options,
                                       const TextStyle& style) {
  if (trace.weights.elements().empty() || options.heads.empty()) {
    return {"  nothing to draw: the weights are empty"};
  }
  const auto map_of = [&](Index head) {
    HeatMapOptions map_options;
    map_options.sample = options.sample;
    map_options.head = head;
    map_options.binning = options.binning;
    return heat_map(trace, map_options);
  };
  const HeatMap first = map_of(options.heads.front());
  std::vector<std::string> labels;
  for (Index row = 0; row < first.rows; ++row) {
    labels.push_back(query_label(trace, options.sample, row, first.row_bin));
  }
  const Frame frame = make_frame(first, labels, options.heads.size(), style);

  std::vector<std::string> lines = legend(first, options, style);
  for (std::size_t begin = 0; begin < options.heads.size(); begin += frame.heads) {
    const std::size_t end = std::min(begin + frame.heads, options.heads.size());
    std::vector<std::vector<std::string>> blocks;
    for (std::size_t i = begin; i < end; ++i) {
      blocks.push_back(
          block_lines(i == 0 ? first : map_of(options.heads[i]), options.heads[i], frame, style));
    }
    lines.emplace_back();
    for (std::size_t row = 0; row < blocks.front().size(); ++row) {
      const std::string label = row < 2 ? "" : clip(labels[row - 2], frame.label);
      std::string line = "  " + pad_right(label, frame.label) + "  ";
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        line += (i == 0 ? "" : std::string(kBetweenHeads, ' ')) + blocks[i][row];
      }
      lines.push_back(std::move(line));
    }
  }
  return lines;
}

}  // namespace qkv::lab
