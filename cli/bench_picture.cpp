#include "cli/bench_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "lab/canvas.h"

namespace qkv::cli {
namespace {

using bench::BenchRow;
using lab::Anchor;
using lab::Canvas;
using lab::Color;
using lab::TextLook;

constexpr double kMargin = 18;
constexpr double kTop = 86;
constexpr double kNames = 330;  // columns of names, of bars and of ratios, in pixels
constexpr double kBars = 440;
constexpr double kRatios = 90;
constexpr double kStep = 34;  // from case to case
constexpr double kBar = 12;

constexpr Color kOurs = {0.13, 0.42, 0.70};
constexpr Color kPeer = {0.80, 0.55, 0.25};
constexpr Color kFlex = {0.50, 0.42, 0.62};
constexpr Color kLine = {0.85, 0.87, 0.9};
constexpr Color kQuiet = {0.4, 0.43, 0.5};

/// A case is as high as its bars.
double height_of(const BenchRow& row) { return row.flex ? kStep + kBar + 1 : kStep; }

double x_of(double part) { return kMargin + kNames + kBars * std::min(part, 1.0); }

void draw_scale(Canvas& canvas, double bottom) {
  TextLook look;
  look.color = kQuiet;
  look.anchor = Anchor::Middle;
  for (int percent = 0; percent <= 100; percent += 20) {
    const double x = x_of(percent / 100.0);
    canvas.fill({x, kTop - 4, 1, bottom - kTop + 4}, kLine);
    canvas.text({x, kTop - 14}, fmt::format("{}%", percent), look);
  }
}

void draw_bar(Canvas& canvas, double y, double part, const Color& color) {
  canvas.fill({x_of(0), y, x_of(part) - x_of(0), kBar}, color);
  TextLook look;
  look.size = 10;
  look.color = kQuiet;
  canvas.text({x_of(part) + 4, y + kBar / 2}, fmt::format("{:.0f}", 100 * part), look);
}

}  // namespace

std::vector<std::byte> bench_png(const BenchReport& report) {
  std::vector<const BenchRow*> rows;
  for (const BenchRow& row : report.rows) {
    if (row.passed()) rows.push_back(&row);
  }
  double bottom = kTop;
  for (const BenchRow* row : rows) bottom += height_of(*row);
  Canvas canvas(static_cast<int>(2 * kMargin + kNames + kBars + kRatios),
                static_cast<int>(bottom + kMargin));
  TextLook title;
  title.size = 15;
  title.bold = true;
  canvas.text({kMargin, 24}, "Part of the machine's limit that attention reaches", title);
  TextLook quiet;
  quiet.color = kQuiet;
  canvas.text({kMargin, 46},
              fmt::format("{}, {} threads, {:.0f} GFLOP/s of multiply-adds in float32",
                          report.target, report.threads,
                          report.limit(bench::LimitKind::MultiplyAddFloat32, report.threads) / 1e9),
              quiet);
  TextLook legend;
  legend.color = kOurs;
  legend.bold = true;
  canvas.text({kMargin, kTop - 14}, "qkv", legend);
  legend.color = kPeer;
  if (!report.peer.empty()) canvas.text({kMargin + 40, kTop - 14}, "PyTorch", legend);
  legend.color = kFlex;
  if (!report.flex.empty()) canvas.text({kMargin + 110, kTop - 14}, "FlexAttention", legend);
  TextLook right;
  right.anchor = Anchor::End;
  right.bold = true;
  const double ratio_x = kMargin + kNames + kBars + kRatios;
  if (!report.peer.empty()) canvas.text({ratio_x, kTop - 14}, "ratio", right);
  draw_scale(canvas, bottom);

  double y = kTop;
  for (const BenchRow* row : rows) {
    TextLook name;
    name.room = kNames - 8;
    canvas.text({kMargin, y + height_of(*row) / 2}, row->bench_case.describe(), name);
    double bar_y = y + 4;
    draw_bar(canvas, bar_y, report.part_of_limit(*row, row->ours), kOurs);
    const auto draw_peer = [&](const std::optional<bench::MeasuredPeer>& peer, const Color& color) {
      if (!peer) return;
      bar_y += kBar + 1;
      draw_bar(canvas, bar_y, report.part_of_limit(*row, *peer), color);
      canvas.text({ratio_x, bar_y + kBar / 2}, fmt::format("{:.2f}x", peer->ratio), right);
    };
    draw_peer(row->peer, kPeer);
    draw_peer(row->flex, kFlex);
    y += height_of(*row);
  }
  return canvas.png();
}

}  // namespace qkv::cli
