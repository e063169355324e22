#include "lab/heat_map_png.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "io/output_file.h"
#include "lab/canvas.h"
#include "lab/text_style.h"

namespace qkv::lab {
namespace {

constexpr double kPanel = 300;       // the longer side of a panel, about
constexpr double kLargestCell = 56;  // so that few tokens do not make posters
constexpr double kSmallestCell = 2;
constexpr double kLabelledCell = 9;   // from here on every token has a label
constexpr double kNumberedCell = 34;  // and from here on its number
constexpr double kGap = 26;           // between panels, which holds a panel's title
constexpr double kMargin = 18;
constexpr double kTop = 76;
constexpr double kLabels = 84;  // for labels of tokens, below and on the left
constexpr double kBar = 130;    // for the colour bar and the legend
constexpr double kMostPixels = 30000;

constexpr Color kHidden = {0.93, 0.93, 0.93};
constexpr Color kHatch = {0.78, 0.78, 0.78};
constexpr Color kFrame = {0.55, 0.58, 0.64};
constexpr Color kNotANumber = {0.85, 0.1, 0.45};
constexpr Color kQuiet = {0.4, 0.43, 0.5};

/// Pale to dark blue.
Color color_of(double fraction) {
  constexpr std::array<Color, 5> kStops = {{{0.98, 0.985, 1.0},
                                            {0.75, 0.85, 0.95},
                                            {0.40, 0.66, 0.86},
                                            {0.13, 0.42, 0.70},
                                            {0.03, 0.14, 0.36}}};
  const double position = std::clamp(fraction, 0.0, 1.0) * (kStops.size() - 1);
  const std::size_t lower = std::min<std::size_t>(static_cast<std::size_t>(position), 3);
  const double share = position - static_cast<double>(lower);
  const auto mix = [&](double Color::*part) {
    return kStops[lower].*part + share * (kStops[lower + 1].*part - kStops[lower].*part);
  };
  return {mix(&Color::red), mix(&Color::green), mix(&Color::blue)};
}

/// Where everything lies.
struct Plan {
  std::vector<HeatMap> maps;
  double largest = 0;
  double cell = 0;
  double panel_width = 0;
  double panel_height = 0;
  std::size_t columns = 0;  ///< panels side by side
  std::size_t rows = 0;
  int width = 0;
  int height = 0;

  Box panel(std::size_t i) const {
    const std::size_t row = i / columns;
    const std::size_t column = i % columns;
    return {kMargin + 16 + kLabels + static_cast<double>(column) * (panel_width + kGap),
            kTop + kGap + static_cast<double>(row) * (panel_height + kGap), panel_width,
            panel_height};
  }
};

Plan make_plan(const Trace& trace, const PictureOptions& options) {
  Plan plan;
  for (const Index head : options.heads) {
    HeatMapOptions map;
    map.sample = options.sample;
    map.head = head;
    map.most_rows = map.most_columns = static_cast<Index>(kPanel / kSmallestCell);
    map.binning = options.binning;
    plan.maps.push_back(heat_map(trace, map));
    plan.largest = std::max(plan.largest, plan.maps.back().largest);
  }
  const HeatMap& first = plan.maps.front();
  const double longer = static_cast<double>(std::max({first.rows, first.columns, Index{1}}));
  plan.cell = std::clamp(std::floor(kPanel / longer), kSmallestCell, kLargestCell);
  plan.panel_width = plan.cell * static_cast<double>(first.columns);
  plan.panel_height = plan.cell * static_cast<double>(first.rows);
  const std::size_t count = plan.maps.size();
  const double square = std::sqrt(static_cast<double>(count) * (plan.panel_height + kGap) /
                                  (plan.panel_width + kGap));
  plan.columns =
      std::clamp<std::size_t>(static_cast<std::size_t>(std::ceil(square * 1.15)), 1, count);
  plan.rows = (count + plan.columns - 1) / plan.columns;
  const double width = 2 * kMargin + 16 + kLabels + kBar +
                       static_cast<double>(plan.columns) * (plan.panel_width + kGap);
  const double height =
      kTop + kMargin + kLabels + 24 + static_cast<double>(plan.rows) * (plan.panel_height + kGap);
  if (width > kMostPixels || height > kMostPixels) {
    throw std::invalid_argument(fmt::format(
        "trace: --png: expected a picture of at most {:.0f} × {:.0f} pixels, got {:.0f} "
        "× {:.0f} for {} heads; choose some with --head",
        kMostPixels, kMostPixels, width, height, count));
  }
  plan.width = static_cast<int>(std::max(width, 620.0));
  plan.height = static_cast<int>(std::max(height, 340.0));
  return plan;
}

void draw_hidden(Canvas& canvas, const Box& box) {
  canvas.fill(box, kHidden);
  canvas.hatch(box, kHatch);
}

void draw_cells(Canvas& canvas, const Plan& plan, const HeatMap& map, const Box& panel) {
  for (Index row = 0; row < map.rows; ++row) {
    for (Index column = 0; column < map.columns; ++column) {
      const Box box = {panel.x + static_cast<double>(column) * plan.cell,
                       panel.y + static_cast<double>(row) * plan.cell, plan.cell, plan.cell};
      const HeatCell& cell = map.at(row, column);
      if (cell.hidden) {
        draw_hidden(canvas, box);
        continue;
      }
      const double fraction = plan.largest > 0 ? cell.weight / plan.largest : 0;
      canvas.fill(box, std::isnan(cell.weight) ? kNotANumber : color_of(fraction));
      if (plan.cell < kNumberedCell) continue;
      TextLook look;
      look.anchor = Anchor::Middle;
      if (!(fraction < 0.5)) look.color = {1, 1, 1};
      canvas.text({box.x + box.width / 2, box.y + box.height / 2},
                  fmt::format("{:.2f}", cell.weight), look);
    }
  }
  canvas.outline(panel, kFrame);
}

/// Labels of tokens: each where cells are large enough, else as many as have room.
Index label_step(const Plan& plan) {
  return static_cast<Index>(std::ceil(kLabelledCell / plan.cell));
}

void label_queries(Canvas& canvas, const Plan& plan, const Trace& trace, Index sample,
                   const Box& panel) {
  TextLook look;
  look.size = 9.5;
  look.anchor = Anchor::End;
  look.room = kLabels - 6;
  const HeatMap& map = plan.maps.front();
  for (Index row = 0; row < map.rows; row += label_step(plan)) {
    const double y = panel.y + (static_cast<double>(row) + 0.5) * plan.cell;
    canvas.text({panel.x - 5, y}, query_label(trace, sample, row, map.row_bin), look);
  }
  look.size = 11;
  look.anchor = Anchor::Middle;
  look.upwards = true;
  look.color = kQuiet;
  look.room = panel.height + kGap;
  canvas.text({kMargin + 4, panel.y + panel.height / 2}, "queries", look);
}

void label_keys(Canvas& canvas, const Plan& plan, const Trace& trace, Index sample,
                const Box& panel) {
  TextLook look;
  look.size = 9.5;
  look.anchor = Anchor::End;
  look.upwards = true;
  look.room = kLabels - 6;
  const HeatMap& map = plan.maps.front();
  double longest = 0;
  for (Index column = 0; column < map.columns; column += label_step(plan)) {
    const double x = panel.x + (static_cast<double>(column) + 0.5) * plan.cell;
    const std::string label = key_label(trace, sample, column, map.column_bin);
    canvas.text({x, panel.y + panel.height + 5}, label, look);
    longest = std::max(longest, std::min(canvas.text_width(label, look), look.room));
  }
  look.size = 11;
  look.anchor = Anchor::Middle;
  look.upwards = false;
  look.color = kQuiet;
  look.room = panel.width + kGap;
  canvas.text({panel.x + panel.width / 2, panel.y + panel.height + longest + 17}, "keys", look);
}

void draw_bar(Canvas& canvas, const Plan& plan) {
  const Box bar = {plan.width - kMargin - kBar + 34, kTop + kGap, 16, 160};
  for (double y = 0; y < bar.height; ++y) {
    canvas.fill({bar.x, bar.y + y, bar.width, 1}, color_of(1 - (y + 0.5) / bar.height));
  }
  canvas.outline(bar, kFrame);
  TextLook look;
  look.size = 10;
  canvas.text({bar.x, bar.y - 12}, "weight", look);
  for (const double share : {0.0, 0.5, 1.0}) {
    canvas.text({bar.x + bar.width + 6, bar.y + (1 - share) * bar.height},
                fmt::format("{:.2f}", share * plan.largest), look);
  }
  const Box hidden = {bar.x, bar.y + bar.height + 20, 16, 16};
  draw_hidden(canvas, hidden);
  canvas.outline(hidden, kFrame);
  canvas.text({hidden.x + 22, hidden.y + 8}, "hidden", look);
}

void draw_title(Canvas& canvas, const Plan& plan, const Trace& trace,
                const PictureOptions& options) {
  TextLook look;
  look.size = 15;
  look.bold = true;
  look.room = plan.width - 2 * kMargin;
  canvas.text({kMargin, 24}, "Attention weights, sample " + fmt::format("{}", options.sample),
              look);
  look.size = 11;
  look.bold = false;
  look.color = kQuiet;
  std::string text = printable(trace.source);
  canvas.text({kMargin, 46}, text, look);
  text = fmt::format("mask: {}", trace.mask.rule);
  const HeatMap& map = plan.maps.front();
  if (map.row_bin > 1 || map.column_bin > 1) {
    text += fmt::format("; each cell is the {} of up to {} × {} weights",
                        options.binning == Binning::Max ? "largest" : "mean", map.row_bin,
                        map.column_bin);
  }
  canvas.text({kMargin, 64}, text, look);
}

}  // namespace

void write_heat_map_png(const std::string& path, const Trace& trace,
                        const PictureOptions& options) {
  if (trace.weights.elements().empty() || options.heads.empty()) {
    throw std::invalid_argument(fmt::format("trace: --png: expected weights to draw, got {}",
                                            to_string(trace.weights.shape())));
  }
  const Plan plan = make_plan(trace, options);
  Canvas canvas(plan.width, plan.height);
  draw_title(canvas, plan, trace, options);
  for (std::size_t i = 0; i < plan.maps.size(); ++i) {
    const Box panel = plan.panel(i);
    draw_cells(canvas, plan, plan.maps[i], panel);
    TextLook look;
    look.bold = true;
    look.room = panel.width + kGap - 4;
    canvas.text({panel.x, panel.y - 11}, fmt::format("head {}", options.heads[i]), look);
    if (i % plan.columns == 0) label_queries(canvas, plan, trace, options.sample, panel);
    if (i + plan.columns >= plan.maps.size())
      label_keys(canvas, plan, trace, options.sample, panel);
  }
  draw_bar(canvas, plan);
  const std::vector<std::byte> bytes = canvas.png();
  OutputFile file(path);
  file.write(bytes);
  file.commit();
}

}  // namespace qkv::lab
