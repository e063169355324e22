#include "lab/trace_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "lab/heat_map_text.h"
#include "lab/mask_text.h"
#include "lab/trace_walk.h"
#include "lab/walk_text.h"

namespace qkv::lab {
namespace {

/// More are drawn when they are asked for by number.
constexpr std::size_t kMostHeadsDrawn = 16;

class Page {
 public:
  explicit Page(const TextStyle& style) : style_(style) {}

  void line(std::string_view text) {
    text_ += text;
    text_ += '\n';
  }
  void lines(const std::vector<std::string>& lines) {
    for (const std::string& text : lines) line(text);
  }
  void section(std::string_view title) {
    line("");
    line(bold(style_, title));
  }
  std::string take() { return std::move(text_); }

 private:
  TextStyle style_;
  std::string text_;
};

void write_head(const Trace& trace, const TextStyle& style, Page& page) {
  for (const std::string& line : wrap("qkv trace of " + printable(trace.source), style.width)) {
    page.line(bold(style, line));
  }
  const MaskShape& sizes = trace.sizes;
  std::string text =
      fmt::format("  batch B={}  queries T={}  keys S={}", sizes.batch, sizes.queries, sizes.keys);
  if (trace.model_width) text += fmt::format("  model D={}", *trace.model_width);
  text += fmt::format("  heads H={}", sizes.heads);
  if (trace.kv_heads != sizes.heads) {
    text += fmt::format("  key/value heads Hkv={}", trace.kv_heads);
  }
  text += fmt::format("  head width Dh={}", trace.head_width);
  if (trace.value_head_width != trace.head_width) {
    text += fmt::format("  Dv={}", trace.value_head_width);
  }
  page.line(text);
}

void write_layout(const Trace& trace, const TextStyle& style, Page& page) {
  page.section("The six shapes");
  TextTable table;
  table.add({"step", "tensor", "shape", "strides", "contiguous", "bytes", "memory"});
  for (const LayoutRow& row : trace.layout) {
    const std::string each = row.count > 1 ? fmt::format("{} × ", row.count) : "";
    const bool absent = row.storage == Storage::Absent;
    table.add({row.step, row.tensors, to_string(row.shape), absent ? "" : to_string(row.strides),
               absent           ? ""
               : row.contiguous ? "yes"
                                : "no",
               absent ? "" : each + grouped_number(row.bytes),
               std::string(absent ? "not there" : name_of(row.storage))});
  }
  const std::vector<std::string> rows = table.lines(2);
  page.line(dim(style, rows.front()));
  for (std::size_t i = 0; i < trace.layout.size(); ++i) {
    page.line(rows[i + 1]);
    const bool last_of_step =
        i + 1 == trace.layout.size() || trace.layout[i + 1].step != trace.layout[i].step;
    if (!last_of_step) continue;
    for (const std::string& line : wrap(trace.layout[i].reason, style.width - 6)) {
      page.line(dim(style, "      " + line));
    }
  }
  page.line(dim(style,
                "  Strides count elements, bytes are those of float64. A view adds none: it "
                "reads the bytes of"));
  page.line(dim(style, "  the row above through other strides."));
}

void write_view(const ViewDemonstration& view, const TextStyle& style, Page& page) {
  page.section("Why merging the heads copies: a view after the transpose");
  const auto cells = [](const ViewStep& step) -> std::vector<std::string> {
    return {step.call, to_string(step.shape), to_string(step.strides),
            step.contiguous ? "contiguous" : "not contiguous"};
  };
  TextTable table;
  table.add(cells(view.context));
  table.add(cells(view.transposed));
  table.add(cells(view.contiguous_copy));
  table.add(cells(view.view_of_copy));
  const std::vector<std::string> rows = table.lines(2);
  const std::string target = to_string(view.target);
  page.line(rows[0]);
  page.line(rows[1] + dim(style, "  view"));
  if (view.strides) {
    page.line(fmt::format("  view_as<3>(transposed, {}): allowed at these sizes, strides {}",
                          target, to_string(*view.strides)));
  } else {
    page.line(fmt::format("  view_as<3>(transposed, {}): {}", target, bad(style, "refused")));
    for (const std::string& line : wrap(view.refusal, style.width - 6)) page.line("      " + line);
  }
  page.line(rows[2] + dim(style, "  copy"));
  page.line(rows[3] + dim(style, "  view of the copy"));
  const std::string reshape = fmt::format(
      "A reshape does either by itself: the view where strides allow one, else the copy. Here it "
      "{}.",
      view.strides ? "is a view" : "copies");
  for (const std::string& line : wrap(reshape, style.width - 2)) page.line("  " + line);
}

void write_walk(const Trace& trace, const TraceChoice& choice, const TextStyle& style, Page& page) {
  if (!choice.query) return;
  page.section("One query, step by step");
  const std::vector<Index> heads = chosen_heads(trace, choice);
  const RowChoice row{choice.sample, heads.empty() ? 0 : heads.front(), *choice.query};
  page.lines(walk_text(walk(trace, row), style));
}

void write_heat_maps(const Trace& trace, const TraceChoice& choice, const TextStyle& style,
                     Page& page) {
  HeatTextOptions options;
  options.sample = choice.sample;
  options.heads = chosen_heads(trace, choice);
  options.binning = choice.binning;
  const std::size_t all = options.heads.size();
  const bool cut = choice.heads.empty() && all > kMostHeadsDrawn;
  if (cut) options.heads.resize(kMostHeadsDrawn);
  page.section(fmt::format("The weights of sample {}: one heat map a head", choice.sample));
  page.lines(heat_map_text(trace, options, style));
  if (cut) {
    page.line(
        fmt::format("  … and {} more heads; --head shows any of them", all - kMostHeadsDrawn));
  }
}

void write_comparisons(const Trace& trace, const TextStyle& style, Page& page) {
  if (trace.comparisons.empty()) return;
  page.section("Beside what the model recorded");
  TextTable table;
  table.add({"tensor", "largest difference", "tolerance", "", "elements"});
  for (const Comparison& entry : trace.comparisons) {
    const std::string left_out =
        entry.left_out == 0
            ? ""
            : fmt::format(" ({} in rows that see no key left out)", grouped_number(entry.left_out));
    table.add({entry.tensor, fmt::format("{:.2g}", entry.largest_difference),
               fmt::format("{:g}", kRecordedTolerance), entry.within_tolerance ? "ok" : "DIFFERS",
               grouped_number(entry.compared) + left_out});
  }
  const std::vector<std::string> rows = table.lines(2);
  page.line(dim(style, rows.front()));
  for (std::size_t i = 0; i < trace.comparisons.size(); ++i) {
    page.line(trace.comparisons[i].within_tolerance ? rows[i + 1] : bad(style, rows[i + 1]));
  }
}

void write_warnings(const Trace& trace, const TextStyle& style, Page& page) {
  page.section("What usually goes wrong");
  if (trace.warnings.empty()) {
    page.line(
        "  nothing found: every row sees a key, weights sum to 1, no two mask axes can be "
        "mistaken");
  }
  for (const Warning& warning : trace.warnings) {
    bool first = true;
    for (const std::string& line : wrap(warning.text, style.width - 4)) {
      page.line((first ? "  ! " : "    ") + line);
      first = false;
    }
  }
}

}  // namespace

std::vector<Index> chosen_heads(const Trace& trace, const TraceChoice& choice) {
  const auto check = [](std::string_view option, Index index, Index count) {
    if (index >= 0 && index < count) return;
    throw std::invalid_argument(
        fmt::format("trace: {}: expected an index from 0 below {}, got {}", option, count, index));
  };
  if (trace.sizes.batch > 0 || choice.sample != 0) {
    check("--sample", choice.sample, trace.sizes.batch);
  }
  for (const Index head : choice.heads) check("--head", head, trace.sizes.heads);
  if (choice.query) check("--query", *choice.query, trace.sizes.queries);
  if (!choice.heads.empty()) return choice.heads;
  std::vector<Index> heads(static_cast<std::size_t>(trace.sizes.heads));
  std::iota(heads.begin(), heads.end(), Index{0});
  return heads;
}

std::string trace_text(const Trace& trace, const TraceChoice& choice, const TextStyle& style) {
  const std::vector<Index> heads = chosen_heads(trace, choice);
  Page page(style);
  write_head(trace, style, page);
  write_layout(trace, style, page);
  write_view(trace.view, style, page);
  page.section("The mask M, added to the scores before the softmax");
  page.lines(mask_text(trace, choice.sample, heads.empty() ? 0 : heads.front(), style));
  write_walk(trace, choice, style, page);
  write_heat_maps(trace, choice, style, page);
  write_comparisons(trace, style, page);
  write_warnings(trace, style, page);
  return page.take();
}

}  // namespace qkv::lab
