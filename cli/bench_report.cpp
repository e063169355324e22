#include "cli/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "lab/text_style.h"

namespace qkv::cli {
namespace {

using bench::BenchCase;
using bench::BenchRow;
using bench::LimitKind;
using bench::Measured;
using nlohmann::json;

constexpr std::size_t kWidth = 100;  // of every line
constexpr double kMebibyte = 1024.0 * 1024.0;

/// Three digits.
std::string digits(double value) {
  return fmt::format("{:.{}f}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
}

std::string duration(double seconds) {
  if (seconds < 0.9995e-3) return digits(1e6 * seconds) + " µs";
  if (seconds < 0.9995) return digits(1e3 * seconds) + " ms";
  return digits(seconds) + " s";
}

/// A line of the table, without blanks at its end.
template <class... Cells>
std::string table_row(const Cells&... cells) {
  std::string line = fmt::format(
      "  {:<14} {:>7} {:>7} {:>7} {:>5} {:>6} | {:>7} {:>5} {:>6} {:>6} | {:>7} {:>5}", cells...);
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

/// A text that goes on under its first line's indent, and two columns further right.
std::string filled(std::size_t indent, const std::string& text) {
  std::string result;
  for (const std::string& line : lab::wrap(text, kWidth - indent - 2)) {
    result += std::string(result.empty() ? indent : indent + 2, ' ') + line + "\n";
  }
  return result;
}

std::string percent(double part) { return fmt::format("{:.0f}%", 100 * part); }

std::string memory(const Measured& measured) {
  if (!measured.extra_memory) return "?";
  return fmt::format("{:.1f}", static_cast<double>(*measured.extra_memory) / kMebibyte);
}

std::string shape(const BenchCase& one) {
  if (one.operation == bench::Operation::Decode) {
    return fmt::format("{}/{} {}:{}", one.new_tokens, one.tokens, one.heads, one.kv_heads);
  }
  return fmt::format("{}x{}x{}x{}", one.batch, one.heads, one.tokens, one.width);
}

std::string kind(const BenchCase& one) {
  if (one.operation == bench::Operation::Decode) {
    return "decode, new/all tokens and heads:kv heads";
  }
  return fmt::format("{}{}, {}",
                     one.operation == bench::Operation::Module ? "MultiHeadAttention, " : "",
                     name_of(one.pass), name_of(one.mask));
}

/// What the rows below it have in common.
std::string heading(const BenchRow& row) {
  const BenchCase& one = row.bench_case;
  std::string text = fmt::format("{}, {}", kind(one), name_of(one.dtype));
  if (one.threads) text += fmt::format(", {} thread{}", *one.threads, *one.threads == 1 ? "" : "s");
  return text;
}

std::string wrong(std::string_view whose, const bench::OracleCheck& check) {
  return filled(4, fmt::format("WRONG: {} differs from the oracle by {:.1e} of its largest entry, "
                               "allowed {:.0e}",
                               whose, check.difference, check.allowed));
}

/// The columns of a peer.
struct PeerCells {
  std::string time = "-";
  std::string part = "-";
  std::string memory = "-";
  std::string ratio = "-";
};

PeerCells cells_of(const BenchReport& report, const BenchRow& row,
                   const std::optional<bench::MeasuredPeer>& peer) {
  if (!peer) return {};
  return {duration(peer->best), percent(report.part_of_limit(row, *peer)), memory(*peer),
          fmt::format("{:.2f}", peer->ratio)};
}

std::string row_text(const BenchReport& report, const BenchRow& row) {
  const BenchCase& one = row.bench_case;
  std::string text;
  if (!row.passed()) {
    text = fmt::format("  {}\n", shape(one));
    if (!row.ours.check.passed()) text += wrong("our result", row.ours.check);
    for (const auto& peer : {row.peer, row.flex}) {
      if (peer && !peer->check.passed()) text += wrong(peer->form, peer->check);
    }
  } else {
    const bool decodes = one.operation == bench::Operation::Decode;
    const PeerCells peer = cells_of(report, row, row.peer);
    const double oracle = row.oracle.seconds(one);
    text = table_row(shape(one), duration(row.ours.best), duration(row.ours.median),
                     digits(one.work() / row.ours.best / 1e9) + (decodes ? " GB" : ""),
                     percent(report.part_of_limit(row, row.ours)), memory(row.ours), peer.time,
                     peer.part, peer.memory, peer.ratio, duration(oracle),
                     fmt::format("{:.0f}", oracle / row.ours.best));
    if (row.flex) {
      const PeerCells flex = cells_of(report, row, row.flex);
      text += table_row("FlexAttention", "", "", "", "", "", flex.time, flex.part, flex.memory,
                        flex.ratio, "", "");
    }
  }
  if (!row.flex_missing.empty()) {
    text += filled(2, "FlexAttention: not measured: " + row.flex_missing);
  }
  return text;
}

std::string limits_text(const BenchReport& report) {
  std::string text = fmt::format("Limits, measured in the same rounds ({}); the best of the run:\n",
                                 report.limit_target);
  const auto line = [&](LimitKind kind, std::string_view unit) {
    std::string cells;
    for (const auto& limit : report.limits) {
      if (limit.kind != kind) continue;
      cells += fmt::format("{:>9.1f} on {} thread{}", limit.best / 1e9, limit.threads,
                           limit.threads == 1 ? " " : "s");
    }
    text += fmt::format("  {:<22}{}  {}\n", name_of(kind), cells, unit);
  };
  line(LimitKind::MultiplyAddFloat32, "GFLOP/s");
  line(LimitKind::MultiplyAddFloat64, "GFLOP/s");
  line(LimitKind::Read, fmt::format("GB/s, of a buffer of {:.0f} MiB",
                                    static_cast<double>(report.read_bytes) / kMebibyte));
  return text;
}

/// The same work on one thread and on two.
std::string scaling_text(const BenchReport& report) {
  std::string text;
  for (const BenchRow& one : report.rows) {
    if (one.bench_case.threads != 1 || !one.passed()) continue;
    for (const BenchRow& two : report.rows) {
      BenchCase same = two.bench_case;
      same.threads = 1;
      if (two.bench_case.threads != 2 || same.describe() != one.bench_case.describe()) continue;
      if (!two.passed()) continue;
      text += fmt::format("  {:<58} {:.2f} times as fast", same.describe(),
                          one.ours.best / two.ours.best);
      if (one.peer && two.peer) {
        text += fmt::format(", PyTorch {:.2f}", one.peer->best / two.peer->best);
      }
      text += "\n";
    }
  }
  return text.empty() ? text : "Two threads beside one, best beside best:\n" + text + "\n";
}

std::string forms_text(const BenchReport& report) {
  std::vector<std::string> lines;
  for (const BenchRow& row : report.rows) {
    for (const auto& peer : {row.peer, row.flex}) {
      if (!peer) continue;
      std::string line = filled(2, fmt::format("{}: {}", kind(row.bench_case), peer->form));
      if (std::find(lines.begin(), lines.end(), line) == lines.end()) {
        lines.push_back(std::move(line));
      }
    }
  }
  std::string text;
  for (const std::string& line : lines) text += line;
  return text.empty() ? text : "PyTorch's fastest forms:\n" + text + "\n";
}

json measured_json(const BenchReport& report, const BenchRow& row, const Measured& measured) {
  json result = {{"difference_from_oracle", measured.check.difference},
                 {"allowed_difference", measured.check.allowed},
                 {"passed", measured.check.passed()}};
  if (!row.passed()) return result;
  result["best_seconds"] = measured.best;
  result["median_seconds"] = measured.median;
  result["gflops"] = row.bench_case.flops() / measured.best / 1e9;
  if (row.bench_case.operation == bench::Operation::Decode) {
    result["gb_per_second"] = row.bench_case.bytes() / measured.best / 1e9;
  }
  result["part_of_limit"] = report.part_of_limit(row, measured);
  result["extra_bytes"] = measured.extra_memory ? json(*measured.extra_memory) : json();
  return result;
}

json peer_json(const BenchReport& report, const BenchRow& row,
               const std::optional<bench::MeasuredPeer>& peer) {
  if (!peer) return {};
  json result = measured_json(report, row, *peer);
  result["form"] = peer->form;
  if (row.passed()) result["ratio"] = peer->ratio;
  return result;
}

json oracle_json(const BenchRow& row) {
  return {{"runs", row.oracle.runs},
          {"best_seconds", row.oracle.best},
          {"flops", row.oracle.flops},
          {"part_of_case", row.oracle.flops / row.bench_case.flops()},
          {"case_seconds", row.oracle.seconds(row.bench_case)},
          {"gflops", row.oracle.flops / row.oracle.best / 1e9}};
}

json row_json(const BenchReport& report, const BenchRow& row) {
  json result = bench_json(row.bench_case);
  result["threads"] = row.threads;
  result["limit"] = name_of(row.limit_kind());
  result["passed"] = row.passed();
  result["rounds"] = row.rounds;
  result["ours"] = measured_json(report, row, row.ours);
  result["peer"] = peer_json(report, row, row.peer);
  result["flex_attention"] = peer_json(report, row, row.flex);
  result["flex_attention_missing"] = row.flex_missing.empty() ? json() : json(row.flex_missing);
  result["oracle"] = oracle_json(row);
  return result;
}

}  // namespace

double BenchReport::limit(LimitKind kind, int of_threads) const {
  const auto found = std::find_if(limits.begin(), limits.end(), [&](const auto& one) {
    return one.kind == kind && one.threads == of_threads;
  });
  return found->best;
}

double BenchReport::part_of_limit(const BenchRow& row, const Measured& measured) const {
  return row.bench_case.work() / measured.best / limit(row.limit_kind(), row.threads);
}

std::string bench_text(const BenchReport& report) {
  std::string text = fmt::format(
      "qkv's engine on {}, {} thread{}, {} rounds a case or more, inputs from N(0,1).\n",
      report.target, report.threads, report.threads == 1 ? "" : "s", report.rounds);
  for (std::size_t i = 0; i < report.peer.size(); ++i) {
    text += i == 0 ? filled(2, "with " + report.peer[i]) : filled(7, report.peer[i]);
  }
  for (const std::string& line : report.flex) text += filled(2, "with " + line);
  if (!report.missing.empty()) text += filled(2, "without PyTorch: " + report.missing);
  if (report.load > 0.5) {
    text += filled(2, fmt::format("on a machine with other work to do (load average {:.1f} before "
                                  "the run): expect noise",
                                  report.load));
  }
  text += limits_text(report);
  text += filled(
      0,
      "limit: operations of the best time (of decode: bytes read, GB/s), as part of the limit. "
      "MiB: "
      "memory beyond inputs and outputs, at its highest. ratio: their time over ours, the median "
      "of "
      "the rounds. oracle: in float64, the whole case at the speed of the rows, heads or samples "
      "that "
      "it computed, and how many times ours is as fast; measured when it made them, and in rounds "
      "for half a second a case.");
  text += "\n";
  text += table_row("BxHxTxD", "best", "median", "GFLOP/s", "limit", "MiB", "PyTorch", "limit",
                    "MiB", "ratio", "oracle", "times");
  std::string last;
  for (const BenchRow& row : report.rows) {
    if (heading(row) != last) text += heading(row) + "\n";
    last = heading(row);
    text += row_text(report, row);
  }
  text += "\n" + forms_text(report) + scaling_text(report);
  const auto failed = std::count_if(report.rows.begin(), report.rows.end(),
                                    [](const BenchRow& row) { return !row.passed(); });
  text += failed == 0
              ? "Every result that was measured agrees with the oracle.\n"
              : fmt::format("{} of {} cases have a WRONG result.\n", failed, report.rows.size());
  return text;
}

json bench_json(const BenchCase& one) {
  json result = {{"case", one.describe()},
                 {"operation", name_of(one.operation)},
                 {"pass", name_of(one.pass)},
                 {"mask", name_of(one.mask)},
                 {"dtype", name_of(one.dtype)},
                 {"B", one.batch},
                 {"H", one.heads},
                 {"T", one.tokens},
                 {"D", one.width},
                 {"flops", one.flops()},
                 {"quick", one.quick}};
  if (one.operation == bench::Operation::Decode) {
    result["T"] = one.new_tokens;
    result["S"] = one.tokens;
    result["Hkv"] = one.kv_heads;
    result["bytes"] = one.bytes();
    result["bytes_per_token"] = one.bytes() / static_cast<double>(one.new_tokens);
  }
  return result;
}

json bench_json(const BenchReport& report) {
  json result = {{"target", report.target},
                 {"threads", report.threads},
                 {"rounds", report.rounds},
                 {"peer", report.peer},
                 {"flex_attention", report.flex},
                 {"missing", report.missing.empty() ? json() : json(report.missing)},
                 {"limit_target", report.limit_target},
                 {"load_average_before", report.load},
                 {"read_buffer_bytes", report.read_bytes},
                 {"limits", json::array()},
                 {"rows", json::array()}};
  for (const auto& limit : report.limits) {
    result["limits"].push_back(
        {{"kind", name_of(limit.kind)},
         {"threads", limit.threads},
         {limit.kind == LimitKind::Read ? "gb_per_second" : "gflops", limit.best / 1e9}});
  }
  for (const BenchRow& row : report.rows) result["rows"].push_back(row_json(report, row));
  return result;
}

}  // namespace qkv::cli
