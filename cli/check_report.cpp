#include "cli/check_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "check/bug_text.h"
#include "check/hand_slice.h"
#include "check/where.h"
#include "cli/check_picture.h"

namespace qkv::cli {
namespace {

using lab::short_number;
using lab::TextStyle;

/// Adds lines of text to a report.
class Page {
 public:
  explicit Page(const TextStyle& style) : style_(style) {}

  void heading(std::string_view text) { text_ += fmt::format("\n{}\n", lab::bold(style_, text)); }
  void line(std::string_view text) {
    while (text.ends_with(' ')) text.remove_suffix(1);
    text_ += fmt::format("{}\n", text);
  }
  void lines(const std::vector<std::string>& lines) {
    for (const std::string& one : lines) line(one);
  }
  /// Broken at blanks, indented.
  void prose(std::string_view text, std::size_t indent = 2, std::string_view first = "") {
    const std::size_t width = std::max<std::size_t>(style_.width, indent + 40) - indent;
    bool is_first = true;
    for (const std::string& one : lab::wrap(text, width)) {
      const std::string front = lab::pad_right(is_first ? std::string(first) : "", indent);
      line(front + one);
      is_first = false;
    }
  }
  const TextStyle& style() const { return style_; }
  const std::string& text() const { return text_; }

 private:
  TextStyle style_;
  std::string text_;
};

std::string units(double value) {
  if (std::isinf(value)) return "∞";
  return value >= 1e4 ? fmt::format("{:.1e}", value) : fmt::format("{:.2f}", value);
}

std::string sizes(const Dump& dump) {
  const AttentionShape& shape = dump.shape;
  return fmt::format("B={}, H={}, Hkv={}, T={}, S={}, Dk={}, Dv={}, {}", shape.batch, shape.heads,
                     shape.kv_heads, shape.queries, shape.keys, shape.key_width, shape.value_width,
                     name_of(dump.ran_in));
}

/// What else than the scale and the mask makes the weights, or nothing.
std::string other_rules(const Dump& dump) {
  std::vector<std::string> rules;
  if (dump.qk_norm) {
    rules.push_back(fmt::format("QK-norm {} rotary positions",
                                dump.qk_norm->after_rotary ? "after" : "before"));
    if (!dump.rotary) rules.back() = "QK-norm";
  }
  if (dump.rotary) {
    const bool halves = dump.rotary->options.pairing == RotaryPairing::Halves;
    rules.push_back(fmt::format("rotary positions (base {}, {})",
                                short_number(dump.rotary->options.base),
                                halves ? "halves" : "interleaved"));
  }
  if (dump.softcap) rules.push_back(fmt::format("softcap {}", short_number(*dump.softcap)));
  if (dump.bias) rules.emplace_back("bias");
  if (dump.alibi_slopes) rules.emplace_back("ALiBi");
  if (dump.sink) rules.emplace_back("sink");
  if (dump.read_rows) rules.emplace_back("rows that nobody reads");
  return fmt::format("{}", fmt::join(rules, ", "));
}

void add_tensors(const Verdict& verdict, Page& page) {
  lab::TextTable table;
  table.add({"tensor", "elements", "largest error", "in units", "allowed", "rms", "allowed", ""});
  for (const TensorVerdict& one : verdict.tensors) {
    std::string remark = one.matches ? "" : "differs";
    if (one.not_finite > 0) remark += fmt::format(", {} not finite", one.not_finite);
    table.add({one.name, lab::grouped_number(one.compared),
               fmt::format("{:.1e}", one.largest_error), units(one.largest_units),
               units(one.largest_allowed), units(one.rms_units), units(one.rms_allowed), remark});
  }
  page.lines(table.lines(2));
  page.prose("A unit is the standard deviation that rounding is expected to make of the element.");
}

void add_where(const TensorVerdict& tensor, Page& page) {
  page.heading("Where");
  page.prose(fmt::format("{}: {}", tensor.name, describe(where_of(tensor))));
  if (tensor.beyond > 0) {
    page.prose(fmt::format("{} of {} elements are further away than rounding goes.",
                           lab::grouped_number(tensor.beyond),
                           lab::grouped_number(tensor.compared)));
  } else {
    page.prose("Every element is within its bound, but together they are too far away.");
  }
  page.lines(error_picture(tensor, page.style()));
}

std::string place(const TensorVerdict& tensor, const Extents<4>& at) {
  const bool merged = tensor.map.units.shape(1) == 1 && at[1] == 0;
  std::string text = fmt::format("sample {}", at[0]);
  if (!merged) text += fmt::format(", head {}", at[1]);
  return text + fmt::format(", row {}, column {}", at[2], at[3]);
}

void add_by_hand(const Dump& dump, const Verdict& verdict, const TensorVerdict& tensor,
                 Page& page) {
  if (dump.shape.keys == 0 || dump.shape.value_width == 0) return;
  const HandSlice slice = hand_slice(dump, verdict, tensor);
  page.heading(fmt::format("By hand: {} at {}", slice.tensor, place(tensor, slice.at)));
  page.prose(
      fmt::format("The query of sample {}, head {}, row {}: score = {} · q·k{}, weight = "
                  "softmax over the {} keys that it sees, column {} of the values.",
                  slice.sample, slice.head, slice.row, short_number(slice.scale),
                  dump.softcap || dump.bias || dump.alibi_slopes ? " and the rules after it" : "",
                  slice.keys.size() + static_cast<std::size_t>(slice.others), slice.column));
  lab::TextTable table;
  table.add({"key", "q·k", "score", "weight", "value", "weight · value"});
  for (const HandKey& key : slice.keys) {
    table.add({fmt::format("{}", key.key), short_number(key.product), short_number(key.score),
               short_number(key.weight), short_number(key.value),
               short_number(key.weight * key.value)});
  }
  if (slice.others > 0) {
    table.add({fmt::format("{} more", slice.others), "", "", short_number(slice.other_weight), "",
               short_number(slice.other_sum)});
  }
  if (slice.sink_weight > 0) {
    table.add({"sink", "", "", short_number(slice.sink_weight), "", "0"});
  }
  if (slice.hidden > 0) table.add({fmt::format("{} hidden", slice.hidden), "", "−∞", "0", "", "0"});
  table.add({"sum", "", "", "", "", short_number(slice.context)});
  page.lines(table.lines(4));
  page.prose(fmt::format("{} expected {:.6g} ± {:.1g}, the dump has {:.6g}", slice.tensor,
                         slice.expected, slice.unit, slice.got));
}

std::string named(const std::vector<std::string>& ids) {
  std::vector<std::string> names;
  for (const std::string& id : ids) {
    const BugText* bug = find_bug_text(id);
    names.push_back(bug == nullptr ? id : fmt::format("{} {}", id, bug->title));
  }
  return fmt::format("{}", fmt::join(names, " and "));
}

/// Those that the text does not end with already.
std::string parameters(const Cause& cause) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : cause.parameters) {
    const bool told = cause.text.find(fmt::format("{} = {:.6g}", name, value)) != std::string::npos;
    if (told) continue;
    texts.push_back(fmt::format("{} = {}", name, short_number(value)));
  }
  return texts.empty() ? "" : fmt::format(" ({})", fmt::join(texts, ", "));
}

void add_causes(const CheckedDump& checked, Page& page) {
  const Diagnosis& diagnosis = *checked.diagnosis;
  page.heading("Why");
  if (diagnosis.causes.empty()) {
    page.prose("Not explained: no class of the catalogue, alone or with another, reproduces it.");
  }
  if (diagnosis.causes.size() > 1) page.prose("Several causes explain it equally:");
  for (const Cause& cause : diagnosis.causes) {
    page.prose(lab::bold(page.style(), named(cause.ids)));
    page.prose(cause.text + parameters(cause), 4);
    page.prose(fmt::format("Reproduces the dump: {} units rms, {} at most; what was meant is {} "
                           "and {} away.",
                           units(cause.distance.rms), units(cause.distance.max),
                           units(diagnosis.intended.rms), units(diagnosis.intended.max)),
               4);
    if (cause.policy) page.prose("A choice about rows that see no key, not always a bug.", 4);
  }
  if (!diagnosis.separation.empty()) {
    page.prose("What would tell them apart: " + diagnosis.separation);
  }
  for (const std::string& fact : diagnosis.facts) page.prose(fact, 4, "  - ");
  if (diagnosis.rivals.empty()) return;
  page.prose("Further away:");
  std::size_t width = 0;
  const auto ids_of = [](const Rival& rival) {
    return fmt::format("{}", fmt::join(rival.ids, " and "));
  };
  for (const Rival& rival : diagnosis.rivals) width = std::max(width, ids_of(rival).size());
  for (const Rival& rival : diagnosis.rivals) {
    page.prose(fmt::format("{} ({} units rms)", rival.text, units(rival.distance.rms)), width + 6,
               "    " + ids_of(rival));
  }
}

void add_fixes(const Diagnosis& diagnosis, Page& page) {
  std::vector<std::string> shown;
  for (const Cause& cause : diagnosis.causes) {
    for (const std::string& id : cause.ids) {
      const BugText* bug = find_bug_text(id);
      if (bug == nullptr || std::find(shown.begin(), shown.end(), id) != shown.end()) continue;
      if (shown.empty()) page.heading("Fix");
      page.prose(bug->short_fix(), 6, "  " + id);
      page.prose(fmt::format("More: qkv check --about {}", id), 6);
      shown.push_back(id);
    }
  }
}

/// Classes that could not show, those of one reason together.
void add_not_shown(const Diagnosis& diagnosis, Page& page) {
  if (diagnosis.not_shown.empty()) return;
  page.heading("What this dump could not have shown");
  std::vector<std::pair<std::string, std::vector<std::string>>> reasons;
  for (const NotShown& one : diagnosis.not_shown) {
    auto found = std::find_if(reasons.begin(), reasons.end(),
                              [&](const auto& reason) { return reason.first == one.reason; });
    if (found == reasons.end()) found = reasons.insert(reasons.end(), {one.reason, {}});
    found->second.push_back(one.id);
  }
  for (const auto& [reason, ids] : reasons) {
    page.prose(fmt::format("{}: {}", fmt::join(ids, ", "), reason));
  }
}

}  // namespace

std::string check_text(const CheckedDump& checked, const TextStyle& style) {
  Page page(style);
  const TensorVerdict& worst = checked.verdict.worst();
  const bool matches = checked.matches();
  page.line(fmt::format("{}: {}", lab::printable(checked.file),
                        matches ? lab::good(style, "matches") : lab::bad(style, "DIFFERS")));
  page.prose(sizes(*checked.dump));
  page.prose("mask: " + checked.dump->rules.mask().describe());
  const std::string others = other_rules(*checked.dump);
  if (!others.empty()) page.prose("also: " + others);
  if (!checked.source.empty()) page.prose("source: " + lab::printable(checked.source));
  const auto& inferred = checked.dump->inferred;
  if (!inferred.empty()) page.prose(fmt::format("inferred: {}", fmt::join(inferred, "; ")));
  page.line("");
  add_tensors(checked.verdict, page);
  if (!matches) {
    if (checked.verdict.matches) {
      page.prose(
          "Every part is within its bound, but a bug explains what is left of it decisively better "
          "than rounding does.");
    } else {
      add_where(worst, page);
    }
    add_by_hand(*checked.dump, checked.verdict, worst, page);
  }
  if (!checked.diagnosis) return page.text();
  if (!matches) {
    add_causes(checked, page);
    add_fixes(*checked.diagnosis, page);
  }
  if (!checked.diagnosis->remarks.empty()) page.heading("Not a bug");
  for (const std::string& remark : checked.diagnosis->remarks) page.prose(remark);
  add_not_shown(*checked.diagnosis, page);
  return page.text();
}

std::string bug_list_text(const TextStyle& style) {
  lab::TextTable table;
  for (const BugText& bug : bug_texts()) table.add({lab::bold(style, bug.id), bug.title});
  return fmt::format("{}\n", fmt::join(table.lines(0), "\n"));
}

}  // namespace qkv::cli
