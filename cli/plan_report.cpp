#include "cli/plan_report.h"

#include <fmt/format.h>

#include <algorithm>

namespace qkv::cli {
namespace {

using engine::BlockCounts;
using engine::BlockKind;
using engine::BlockMap;
using engine::Division;
using engine::HeadPlan;
using engine::Plan;
using nlohmann::json;

constexpr Index kMostLines = 32;
constexpr Index kMostColumns = 64;
constexpr const char* kHeadRow = "  {:<26} {:>10} {:>10} {:>10} {:>10}\n";

constexpr Index divide_up(Index a, Index b) { return (a + b - 1) / b; }

char letter(BlockKind kind) {
  switch (kind) {
    case BlockKind::Hidden:
      return '.';
    case BlockKind::Partial:
      return '+';
    case BlockKind::Full:
      return '#';
  }
  return '?';
}

/// Blocks that share a character: what they all are, or partial.
char letter(const BlockMap& map, Index first_row, Index rows, Index first_segment, Index segments) {
  const BlockKind first = map(first_row, first_segment);
  for (Index row = first_row; row < std::min(first_row + rows, map.rows); ++row) {
    for (Index s = first_segment; s < std::min(first_segment + segments, map.segments); ++s) {
      if (map(row, s) != first) return letter(BlockKind::Partial);
    }
  }
  return letter(first);
}

std::string counts_row(const std::string& name, const BlockCounts& counts) {
  return fmt::format(fmt::runtime(kHeadRow), name, counts.hidden, counts.partial, counts.full,
                     fmt::format("{:.2f} %", 100 * counts.visible_fraction()));
}

bool same_counts(const BlockCounts& a, const BlockCounts& b) {
  return a.hidden == b.hidden && a.partial == b.partial && a.full == b.full && a.pairs == b.pairs &&
         a.visible_pairs == b.visible_pairs;
}

std::string range(const char* what, Index first, Index last) {
  return first == last ? fmt::format("{} {}", what, first)
                       : fmt::format("{}s {}-{}", what, first, last);
}

/// A line a kv head; kv heads of a sample that are alike share one.
std::string heads_text(const std::vector<HeadPlan>& heads) {
  std::string text;
  for (std::size_t i = 0; i < heads.size();) {
    std::size_t next = i + 1;
    while (next < heads.size() && heads[next].sample == heads[i].sample &&
           same_counts(heads[next].blocks, heads[i].blocks)) {
      ++next;
    }
    text += counts_row(fmt::format("sample {}, {}", heads[i].sample,
                                   range("kv head", heads[i].kv_head, heads[next - 1].kv_head)),
                       heads[i].blocks);
    i = next;
  }
  return text;
}

std::string division_text(const Plan& plan) {
  if (plan.division == Division::Keys) {
    return fmt::format("by keys: few rows ({}) a kv head, its keys in {}", plan.rows,
                       plan.key_parts == 1 ? "one part" : fmt::format("{} parts", plan.key_parts));
  }
  if (plan.division == Division::Chunks) {
    return fmt::format("by keys, {} chunk{} a kv head; past each go all rows, in {} tile{} of {}",
                       plan.key_parts, plan.key_parts == 1 ? "" : "s", plan.tiles,
                       plan.tiles == 1 ? "" : "s", plan.tile_rows);
  }
  return fmt::format("by tiles of {} rows, {} a kv head", plan.tile_rows, plan.tiles);
}

std::string_view name_of(Division division) {
  switch (division) {
    case Division::Keys:
      return "keys";
    case Division::Chunks:
      return "chunks";
    default:
      return "tiles";
  }
}

std::string dropout_text(const Plan& plan) {
  return plan.dropout ? fmt::format("{} of the weights", plan.dropout->probability) : "off";
}

std::string map_text(const PlannedCall& call, const Plan& plan, const BlockMap& map) {
  const Index group = call.heads / call.kv_heads;
  std::string text = fmt::format(
      "\nSample {}, kv head {} ({}): queries downwards, keys to the right\n", call.drawn_sample,
      call.drawn_kv_head,
      range("query head", call.drawn_kv_head * group, call.drawn_kv_head * group + group - 1));
  if (map.kinds.empty()) return text + "  nothing to draw: there are no keys\n";
  const Index rows = divide_up(map.rows, kMostLines);
  const Index segments = divide_up(map.segments, kMostColumns);
  text += fmt::format("  . hidden  + partial  # full; a character is {} rows × {} keys{}\n",
                      rows * plan.block_rows, segments * plan.block_keys,
                      rows * segments == 1 ? "" : ", + also where its blocks differ");
  for (Index row = 0; row < map.rows; row += rows) {
    text += fmt::format("  {:>9} ", row * plan.block_rows / group);
    for (Index segment = 0; segment < map.segments; segment += segments) {
      text += letter(map, row, rows, segment, segments);
    }
    text += '\n';
  }
  return text;
}

json counts_json(const BlockCounts& counts) {
  return {{"hidden", counts.hidden},
          {"partial", counts.partial},
          {"full", counts.full},
          {"pairs", counts.pairs},
          {"visible_pairs", counts.visible_pairs},
          {"visible_fraction", counts.visible_fraction()}};
}

}  // namespace

std::string plan_text(const PlannedCall& call, const Plan& plan, const BlockMap& map) {
  std::string text = fmt::format(
      "{}, {}: B={}, H={}, Hkv={}, T={}, S={}, Dk={}, Dv={}\n"
      "  mask       {}\n"
      "  target     {}, blocks of {} rows × {} keys\n",
      call.function, call.dtype, call.batch, call.heads, call.kv_heads, call.queries, call.keys,
      call.width, call.value_width, call.mask, plan.target, plan.block_rows, plan.block_keys);
  if (plan.heads.empty()) return text + "  nothing to do\n";
  text += fmt::format("  division   {}\n", division_text(plan));
  if (plan.division == Division::Chunks) {
    text += fmt::format("  whole      {} of {} kv heads\n", plan.whole_heads, plan.heads.size());
  }
  text += fmt::format(
      "  threads    {}\n"
      "  dropout    {}\n"
      "  workspace  {:.1f} KiB\n\n",
      plan.threads, dropout_text(plan), static_cast<double>(plan.workspace_bytes) / 1024);
  text += fmt::format(fmt::runtime(kHeadRow), "blocks", "hidden", "partial", "full", "visible");
  text += heads_text(plan.heads);
  if (plan.heads.size() > 1) text += counts_row("total", plan.total);
  return text + map_text(call, plan, map);
}

json plan_json(const PlannedCall& call, const Plan& plan, const BlockMap& map) {
  json result = {{"sizes",
                  {{"B", call.batch},
                   {"H", call.heads},
                   {"Hkv", call.kv_heads},
                   {"T", call.queries},
                   {"S", call.keys},
                   {"Dk", call.width},
                   {"Dv", call.value_width}}},
                 {"function", call.function},
                 {"dtype", call.dtype},
                 {"mask", call.mask},
                 {"target", plan.target},
                 {"threads", plan.threads},
                 {"division", name_of(plan.division)},
                 {"dropout", plan.dropout ? json(plan.dropout->probability) : json()},
                 {"rows", plan.rows},
                 {"block_rows", plan.block_rows},
                 {"block_keys", plan.block_keys},
                 {"tile_rows", plan.tile_rows},
                 {"tiles", plan.tiles},
                 {"key_parts", plan.key_parts},
                 {"whole_heads", plan.whole_heads},
                 {"workspace_bytes", plan.workspace_bytes},
                 {"heads", json::array()},
                 {"total", counts_json(plan.total)}};
  for (const HeadPlan& head : plan.heads) {
    json one = counts_json(head.blocks);
    one["sample"] = head.sample;
    one["kv_head"] = head.kv_head;
    result["heads"].push_back(std::move(one));
  }
  if (plan.heads.empty()) return result;
  json lines = json::array();
  for (Index row = 0; row < map.rows; ++row) {
    std::string line;
    for (Index segment = 0; segment < map.segments; ++segment) line += letter(map(row, segment));
    lines.push_back(line);
  }
  result["map"] = {{"sample", call.drawn_sample}, {"kv_head", call.drawn_kv_head}, {"rows", lines}};
  return result;
}

}  // namespace qkv::cli
