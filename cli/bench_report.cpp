#include "cli/bench_report.h"

#include <fmt/format.h>

#include <algorithm>

namespace qkv::cli {
namespace {

using bench::BenchCase;
using bench::BenchRow;
using bench::LimitKind;
using bench::Measured;
using nlohmann::json;

constexpr const char* kRow =
    "  {:<14} {:>8} {:>8} {:>8} {:>6} {:>9} | {:>8} {:>6} {:>9} | {:>6} {:>7}\n";
constexpr double kMebibyte = 1024.0 * 1024.0;

std::string duration(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} µs", 1e6 * seconds);
  if (seconds < 1) return fmt::format("{:.2f} ms", 1e3 * seconds);
  return fmt::format("{:.2f} s", seconds);
}

std::string percent(double part) { return fmt::format("{:.0f}%", 100 * part); }

std::string memory(const Measured& measured) {
  if (!measured.extra_memory) return "unknown";
  return fmt::format("{:.1f} MiB", static_cast<double>(*measured.extra_memory) / kMebibyte);
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
  return fmt::format(
      "    WRONG: {} differs from the oracle by {:.1e} of its largest entry, allowed {:.0e}\n",
      whose, check.difference, check.allowed);
}

std::string row_text(const BenchReport& report, const BenchRow& row) {
  const BenchCase& one = row.bench_case;
  if (!row.passed()) {
    std::string text = fmt::format("  {}\n", shape(one));
    if (!row.ours.check.passed()) text += wrong("our result", row.ours.check);
    if (row.peer && !row.peer->check.passed()) text += wrong(row.peer->form, row.peer->check);
    return text;
  }
  std::string peer_time = "-";
  std::string peer_part = "-";
  std::string peer_memory = "-";
  std::string ratio = "-";
  if (row.peer) {
    peer_time = duration(row.peer->best);
    peer_part = percent(report.part_of_limit(row, *row.peer));
    peer_memory = memory(*row.peer);
    ratio = fmt::format("{:.2f}", row.peer->ratio);
  }
  const bool decodes = one.operation == bench::Operation::Decode;
  const double speed = one.flops() / row.ours.best;
  std::string text = fmt::format(
      fmt::runtime(kRow), shape(one), duration(row.ours.best), duration(row.ours.median),
      fmt::format("{:.1f}{}", one.work() / row.ours.best / 1e9, decodes ? " GB" : ""),
      percent(report.part_of_limit(row, row.ours)), memory(row.ours), peer_time, peer_part,
      peer_memory, ratio, fmt::format("{:.0f}", speed / row.oracle_speed));
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
      text += fmt::format("  {:<60} {:.2f} times as fast", same.describe(),
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
    if (!row.peer) continue;
    std::string line = fmt::format("  {:<46} {}\n", kind(row.bench_case), row.peer->form);
    if (std::find(lines.begin(), lines.end(), line) == lines.end())
      lines.push_back(std::move(line));
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

json row_json(const BenchReport& report, const BenchRow& row) {
  json result = bench_json(row.bench_case);
  result["threads"] = row.threads;
  result["limit"] = name_of(row.limit_kind());
  result["oracle_gflops"] = row.oracle_speed / 1e9;
  result["passed"] = row.passed();
  result["rounds"] = row.rounds;
  result["ours"] = measured_json(report, row, row.ours);
  result["peer"] = json();
  if (row.peer) {
    result["peer"] = measured_json(report, row, *row.peer);
    result["peer"]["form"] = row.peer->form;
    if (row.passed()) result["peer"]["ratio"] = row.peer->ratio;
  }
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
    text += fmt::format("  {} {}\n", i == 0 ? "with" : "    ", report.peer[i]);
  }
  if (!report.missing.empty()) text += fmt::format("  without PyTorch: {}\n", report.missing);
  if (report.load > 0.5) {
    text += fmt::format(
        "  on a machine with other work to do (load average {:.1f} before the run): expect noise\n",
        report.load);
  }
  text += limits_text(report);
  text +=
      "limit: operations of the best time (of decode: bytes read, GB/s), as part of the limit. "
      "memory: beyond\n"
      "inputs and outputs, at its highest. ratio: PyTorch's time over ours, the median of the "
      "rounds. oracle: times faster "
      "than it.\n\n";
  text += fmt::format(fmt::runtime(kRow), "BxHxTxD", "best", "median", "GFLOP/s", "limit", "memory",
                      "PyTorch", "limit", "memory", "ratio", "oracle");
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
