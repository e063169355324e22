#include "lab/experiment_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <set>

#include "base/overloaded.h"

namespace qkv::lab {
namespace {

constexpr std::size_t kIndent = 2;
constexpr std::size_t kGap = 2;
constexpr std::size_t kWidestWords = 36;  ///< of a cell, before it is wrapped
constexpr std::size_t kNarrowestHead = 12;

using Lines = std::vector<std::string>;

std::string measured_text(const Measured& measured) {
  if (!measured.low && !measured.high) return short_number(measured.value);
  return fmt::format("{} [{}, {}]", short_number(measured.value),
                     short_number(measured.low.value_or(measured.value)),
                     short_number(measured.high.value_or(measured.value)));
}

std::string cell_text(const Cell& cell) {
  return std::visit(Overloaded{[](const Measured& value) { return measured_text(value); },
                               [](std::int64_t value) { return grouped_number(value); },
                               [](const std::string& value) { return printable(value); },
                               [](const Text& value) { return printable(value.english); }},
                    cell);
}

bool is_number(const Cell& cell) {
  return std::holds_alternative<Measured>(cell) || std::holds_alternative<std::int64_t>(cell);
}

std::size_t widest(const Lines& lines) {
  std::size_t width = 0;
  for (const std::string& line : lines) width = std::max(width, display_width(line));
  return width;
}

/// A column as it is printed: a head and cells of one or more lines each.
struct PrintedColumn {
  Lines head;
  std::vector<Lines> cells;
  std::size_t width = 0;
  bool to_the_right = true;
};

/// Columns side by side.
using Block = std::vector<const PrintedColumn*>;

PrintedColumn print_column(const Table& table, std::size_t c) {
  PrintedColumn column;
  for (const std::vector<Cell>& row : table.rows) {
    column.to_the_right = column.to_the_right && is_number(row[c]);
    Lines lines = wrap(cell_text(row[c]), kWidestWords);
    if (lines.empty()) lines.emplace_back();
    column.width = std::max(column.width, widest(lines));
    column.cells.push_back(std::move(lines));
  }
  std::string name = table.columns[c].name.english;
  const std::string& unit = table.columns[c].unit.english;
  if (!unit.empty()) name += fmt::format(" ({})", unit);
  const std::size_t longest_word = widest(wrap(name, 1));
  column.head = wrap(name, std::max({column.width, longest_word, kNarrowestHead}));
  column.width = std::max(column.width, widest(column.head));
  return column;
}

std::string aligned(const PrintedColumn& column, const Lines& lines, std::size_t line) {
  const std::string text = line < lines.size() ? lines[line] : "";
  return column.to_the_right ? pad_left(text, column.width) : pad_right(text, column.width);
}

/// A row of the table, as many lines as its highest cell has; `cell_of` gives a column's lines.
template <class CellOf>
Lines print_row(const Block& columns, CellOf cell_of) {
  std::size_t height = 0;
  for (const PrintedColumn* column : columns) height = std::max(height, cell_of(*column).size());
  Lines lines;
  for (std::size_t i = 0; i < height; ++i) {
    std::string line(kIndent, ' ');
    for (const PrintedColumn* column : columns) {
      if (column != columns.front()) line += std::string(kGap, ' ');
      line += aligned(*column, cell_of(*column), i);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(std::move(line));
  }
  return lines;
}

/// How many columns it takes to tell rows apart, or as many as may be repeated.
std::size_t leading_columns(const std::vector<PrintedColumn>& columns) {
  const std::size_t most = std::min<std::size_t>(columns.size(), 3);
  for (std::size_t count = 1; count < most; ++count) {
    std::set<std::vector<Lines>> rows;
    const std::size_t all = columns.front().cells.size();
    for (std::size_t r = 0; r < all; ++r) {
      std::vector<Lines> row;
      for (std::size_t c = 0; c < count; ++c) row.push_back(columns[c].cells[r]);
      rows.insert(std::move(row));
    }
    if (rows.size() == all) return count;
  }
  return most;
}

/// As many columns side by side as fit, those in front that tell rows apart in each block.
std::vector<Block> blocks_of(const std::vector<PrintedColumn>& columns, std::size_t width) {
  Block leading;
  std::size_t leading_width = kIndent;
  for (std::size_t c = 0; c < leading_columns(columns); ++c) {
    leading.push_back(&columns[c]);
    leading_width += columns[c].width + kGap;
  }
  std::vector<Block> blocks = {leading};
  std::size_t used = leading_width;
  for (std::size_t c = leading.size(); c < columns.size(); ++c) {
    if (used + columns[c].width > width && blocks.back().size() > leading.size()) {
      blocks.push_back(leading);
      used = leading_width;
    }
    blocks.back().push_back(&columns[c]);
    used += columns[c].width + kGap;
  }
  return blocks;
}

void append(Lines& lines, Lines more) {
  lines.insert(lines.end(), std::make_move_iterator(more.begin()),
               std::make_move_iterator(more.end()));
}

void append_table(const Table& table, const TextStyle& style, Lines& lines) {
  std::vector<PrintedColumn> columns;
  for (std::size_t c = 0; c < table.columns.size(); ++c) columns.push_back(print_column(table, c));
  for (const std::string& line : wrap(table.title.english, style.width - kIndent)) {
    lines.push_back(std::string(kIndent, ' ') + bold(style, line));
  }
  for (const Block& block : blocks_of(columns, style.width)) {
    lines.emplace_back();
    for (const std::string& line :
         print_row(block, [](const PrintedColumn& column) { return column.head; })) {
      lines.push_back(dim(style, line));
    }
    for (std::size_t r = 0; r < table.rows.size(); ++r) {
      append(lines, print_row(block, [&](const PrintedColumn& column) { return column.cells[r]; }));
    }
  }
  lines.emplace_back();
}

void append_words(std::string_view text, std::size_t indent, const TextStyle& style, Lines& lines) {
  for (const std::string& line : wrap(text, style.width - indent)) {
    lines.push_back(std::string(indent, ' ') + line);
  }
}

void append_effect(const Effect& effect, const TextStyle& style, Lines& lines) {
  constexpr std::size_t kBesideMark = kIndent + 2;
  const std::size_t first = lines.size();
  append_words(effect.claim.english, kBesideMark, style, lines);
  if (lines.size() > first) {
    lines[first].replace(kIndent, 1, effect.holds ? good(style, "✓") : bad(style, "✗"));
  }
  append_words(effect.found.english, kBesideMark, style, lines);
}

void append_paragraphs(std::string_view text, const TextStyle& style, Lines& lines) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    append_words(text.substr(0, end), kIndent, style, lines);
    if (end > 0) lines.emplace_back();
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

/// Each token behind a block as high as its share of the largest score; a minus where it is negative.
void append_token_maps(const TokenMaps& maps, const TextStyle& style, Lines& lines) {
  constexpr std::array<const char*, 9> kBlocks = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  append_words(maps.title.english, kIndent, style, lines);
  lines.emplace_back();
  std::size_t widest_name = 0;
  for (const TokenScores& method : maps.methods)
    widest_name = std::max(widest_name, display_width(method.name.english));
  for (const TokenScores& method : maps.methods) {
    double most = 0;
    for (const double score : method.scores) most = std::max(most, std::fabs(score));
    std::string text;
    for (std::size_t t = 0; t < maps.tokens.size(); ++t) {
      const double share = most > 0 ? method.scores[t] / most : 0;
      const auto level = static_cast<std::size_t>(std::lround(8 * std::fabs(share)));
      text += fmt::format("{}{}{}{}", t == 0 ? "" : " ", share < 0 && level > 0 ? "-" : "",
                          level == 0 ? "" : kBlocks.at(level), printable(maps.tokens[t]));
    }
    const std::size_t column = kIndent + widest_name + kGap;
    const std::size_t width = style.width > column + 20 ? style.width - column : 20;
    std::string name = pad_right(method.name.english, widest_name);
    for (const std::string& line : wrap(text, width)) {
      lines.push_back(fmt::format("{:{}}{}{:{}}{}", "", kIndent, name, "", kGap, line));
      name.assign(widest_name, ' ');
    }
  }
  lines.emplace_back();
}

}  // namespace

std::string experiment_text(const Experiment& experiment, const TextStyle& style) {
  Lines lines;
  lines.push_back(bold(style, fmt::format("§{}  {}: {}", experiment.section, experiment.name,
                                          experiment.title.english)));
  lines.emplace_back();
  append_paragraphs(experiment.explanation.english, style, lines);
  for (const TokenMaps& maps : experiment.token_maps) append_token_maps(maps, style, lines);
  for (const Table& table : experiment.tables) append_table(table, style, lines);
  for (const Effect& effect : experiment.effects) append_effect(effect, style, lines);
  if (!experiment.effects.empty()) lines.emplace_back();
  append_words("You should have seen: " + experiment.seen.english, kIndent, style, lines);
  const auto missed =
      std::ranges::count_if(experiment.effects, std::logical_not<>(), &Effect::holds);
  if (missed > 0) {
    append_words(fmt::format("This time {} of {} {} not there: see ✗ above.", missed,
                             experiment.effects.size(), missed == 1 ? "was" : "were"),
                 kIndent, style, lines);
  }
  lines.emplace_back();

  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace qkv::lab
