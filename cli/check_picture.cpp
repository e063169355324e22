#include "cli/check_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "check/where.h"

namespace qkv::cli {
namespace {

constexpr Index kMostLines = 32;

/// Of the errors that are numbers.
double largest_of(const TensorVerdict& tensor) {
  double largest = 0;
  for (const float units : tensor.map.units.elements()) {
    if (std::isfinite(units)) largest = std::max(largest, static_cast<double>(units));
  }
  return largest;
}

/// Errors by their share of the largest one.
std::string cell(double units, double allowed, double largest, const lab::TextStyle& style) {
  if (units < 0) return " ";
  if (std::isinf(units)) return lab::bad(style, "!");
  if (units <= allowed) return lab::dim(style, "·");
  const double share = units / largest;
  return lab::bad(style, share < 0.01 ? "░" : share < 0.1 ? "▒" : share < 0.5 ? "▓" : "█");
}

/// Numbers of the rows above their cells.
std::string ruler(std::size_t cells, Index rows_per_cell) {
  std::string text;
  for (std::size_t at = 0; at < cells; at += 10) {
    const std::string number = fmt::format("{}", static_cast<Index>(at) * rows_per_cell);
    if (at + number.size() > std::max<std::size_t>(cells, number.size())) break;
    text = lab::pad_right(std::move(text), at);
    text += number;
  }
  return text;
}

}  // namespace

std::vector<std::string> error_picture(const TensorVerdict& tensor, const lab::TextStyle& style) {
  constexpr std::size_t kLabel = 24;
  const auto room = static_cast<Index>(style.width - std::min(style.width, kLabel));
  const ErrorMap map = error_map(tensor, kMostLines, std::max<Index>(room, 20));
  if (map.lines.empty()) return {};
  const double largest = largest_of(tensor);
  std::size_t label = 0;
  for (const std::string& one : map.labels) label = std::max(label, lab::display_width(one));
  const bool by_key =
      tensor.name == "dk" || tensor.name == "dv" || tensor.name == "k" || tensor.name == "v";
  std::vector<std::string> lines = {""};
  lines.push_back(lab::dim(
      style, std::string(label + 4, ' ') + ruler(map.lines.front().size(), map.rows_per_cell)));
  for (std::size_t i = 0; i < map.lines.size(); ++i) {
    std::string line = "  " + lab::pad_right(map.labels[i], label) + "  ";
    for (const MapCell& one : map.lines[i])
      line += cell(one.units, tensor.largest_allowed, largest, style);
    lines.push_back(std::move(line));
  }
  lines.emplace_back();
  if (map.left_out > 0) {
    lines.back() = fmt::format("  {} more lines are not drawn.", map.left_out);
    lines.emplace_back();
  }
  std::string across = by_key ? "keys" : "rows of queries";
  if (map.rows_per_cell > 1) across += fmt::format(", {} a character", map.rows_per_cell);
  const std::string legend = fmt::format(
      "Across: {}. ·: within rounding; ░ ▒ ▓ █: below 1, 10, 50 and 100 % of the largest error; !: "
      "not a number.",
      across);
  for (const std::string& one : lab::wrap(legend, style.width - 2)) lines.push_back("  " + one);
  return lines;
}

}  // namespace qkv::cli
