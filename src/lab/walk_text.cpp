#include "lab/walk_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace qkv::lab {
namespace {

constexpr std::size_t kMostKeys = 16;

/// How much of each vector is written out.
struct Detail {
  std::size_t products = 0;  ///< of a dot product; 0 leaves only the sum
  std::size_t elements = 0;  ///< of a vector; 0 leaves only its name
};
constexpr std::array<Detail, 4> kDetails = {{{3, 4}, {2, 3}, {1, 2}, {0, 0}}};

/// Every key, or of many those that the query weighs most.
std::vector<std::size_t> keys_to_show(const Walk& walk) {
  std::vector<std::size_t> order(walk.keys.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (order.size() <= kMostKeys) return order;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return walk.keys[a].weight > walk.keys[b].weight;
  });
  order.resize(kMostKeys);
  std::sort(order.begin(), order.end());
  return order;
}

/// "1·0 + 1·1 = 1"
std::string dot_text(const Walk& walk, const WalkKey& entry, const Detail& detail) {
  if (detail.products == 0) return short_number(entry.dot);
  std::string text;
  for (std::size_t d = 0; d < std::min(entry.key.size(), detail.products); ++d) {
    text += fmt::format("{}{}·{}", d == 0 ? "" : " + ", short_number(walk.query[d]),
                        short_number(entry.key[d]));
  }
  if (entry.key.size() > detail.products) text += " + …";
  return fmt::format("{} = {}", text, short_number(entry.dot));
}

std::string scale_text(const Walk& walk) {
  const auto width = static_cast<double>(walk.query.size());
  const bool standard = walk.scale == 1 / std::sqrt(width);
  return standard ? fmt::format("1/√{} = {}", walk.query.size(), short_number(walk.scale))
                  : short_number(walk.scale);
}

TextTable match_table(const Walk& walk, const std::vector<std::size_t>& shown,
                      const Detail& detail) {
  TextTable table;
  std::vector<std::string> head = {"key", "q·k", "· scale"};
  if (walk.has_bias) head.emplace_back("+ bias");
  head.insert(head.end(), {"+ M", "exp(s - max)", "weight"});
  table.add(head);
  for (const std::size_t s : shown) {
    const WalkKey& entry = walk.keys[s];
    std::string name = fmt::format("k{}", s);
    if (detail.elements > 0) name += " = " + short_vector(entry.key, detail.elements);
    std::vector<std::string> row = {name, dot_text(walk, entry, detail),
                                    short_number(entry.scaled)};
    if (walk.has_bias) row.push_back(short_number(entry.scaled + entry.bias));
    row.push_back(entry.visible ? short_number(entry.scaled + entry.bias) : "-∞");
    row.push_back(short_number(entry.exponential));
    row.push_back(short_number(entry.weight));
    table.add(row);
  }
  std::vector<std::string> foot = {"", "", ""};
  if (walk.has_bias) foot.emplace_back();
  foot.push_back(walk.largest ? fmt::format("max {}", short_number(*walk.largest)) : "max -∞");
  foot.push_back(fmt::format("sum {}", short_number(walk.sum)));
  foot.emplace_back(walk.largest ? "sum 1" : "sum 0");
  table.add(foot);
  return table;
}

TextTable aggregate_table(const Walk& walk, const std::vector<std::size_t>& shown,
                          const Detail& detail) {
  const std::size_t elements = std::max<std::size_t>(detail.elements, 2);
  TextTable table;
  for (const std::size_t s : shown) {
    const WalkKey& entry = walk.keys[s];
    table.add({fmt::format("{} · v{}", short_number(entry.weight), s),
               "= " + short_number(entry.weight) + " · " + short_vector(entry.value, elements),
               "= " + short_vector(entry.contribution, elements)});
  }
  table.add({"context", "= their sum", "= " + short_vector(walk.context, elements)});
  return table;
}

/// With as much detail as fits into the width.
template <class MakeTable>
void append_fitting(MakeTable make_table, const TextStyle& style, std::vector<std::string>& lines) {
  for (const Detail& detail : kDetails) {
    std::vector<std::string> rows = make_table(detail).lines(5);
    const bool fits = std::all_of(rows.begin(), rows.end(), [&](const std::string& row) {
      return display_width(row) <= style.width;
    });
    if (!fits && &detail != &kDetails.back()) continue;
    lines.insert(lines.end(), rows.begin(), rows.end());
    return;
  }
}

void append_match(const Walk& walk, const std::vector<std::size_t>& shown, const TextStyle& style,
                  std::vector<std::string>& lines) {
  lines.push_back(fmt::format("  {}  score = q·k · scale + M, with scale = {}",
                              bold(style, "1. Match: the query against every key."),
                              scale_text(walk)));
  lines.emplace_back();
  append_fitting([&](const Detail& detail) { return match_table(walk, shown, detail); }, style,
                 lines);
  if (shown.size() < walk.keys.size()) {
    lines.push_back(dim(style, fmt::format("     (the {} largest weights of {} keys)", shown.size(),
                                           walk.keys.size())));
  }
  lines.emplace_back();
  const std::string note =
      walk.largest
          ? "M is 0 where the query may look and -∞ where it may not. Subtracting the largest "
            "score "
            "changes no weight (it cancels in exp / sum) and keeps exp from overflowing. "
            "weight = exp / sum."
          : "The query may look at no key: there is nothing to normalise, and every weight is 0.";
  for (const std::string& line : wrap(note, style.width - 5)) {
    lines.push_back("     " + dim(style, line));
  }
}

void append_aggregate(const Walk& walk, const std::vector<std::size_t>& shown,
                      const TextStyle& style, std::vector<std::string>& lines) {
  lines.push_back(
      fmt::format("  {}", bold(style, "2. Aggregate: the values, weighted and added.")));
  lines.emplace_back();
  append_fitting([&](const Detail& detail) { return aggregate_table(walk, shown, detail); }, style,
                 lines);
}

}  // namespace

std::vector<std::string> walk_text(const Walk& walk, const TextStyle& style) {
  const std::vector<std::size_t> shown = keys_to_show(walk);
  std::vector<std::string> lines;
  lines.push_back(fmt::format("  q{} = {}   what token {} looks for (sample {}, head {})",
                              walk.query_token, short_vector(walk.query, 6), walk.query_token,
                              walk.sample, walk.head));
  lines.emplace_back();
  append_match(walk, shown, style, lines);
  lines.emplace_back();
  append_aggregate(walk, shown, style, lines);
  return lines;
}

}  // namespace qkv::lab
