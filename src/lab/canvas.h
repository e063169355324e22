// A thin, safe layer over cairo: an image to draw on, and its PNG bytes.
#pragma once

#include <cairo.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace qkv::lab {

struct Color {
  double red = 0;
  double green = 0;
  double blue = 0;
};

struct Point {
  double x = 0;
  double y = 0;
};

/// Pixels, from the upper left.
struct Box {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
};

/// Where a text lies relative to its point.
enum class Anchor : std::uint8_t { Start, Middle, End };

struct TextLook {
  double size = 11;
  Anchor anchor = Anchor::Start;
  bool bold = false;
  bool upwards = false;  ///< turned by 90°, read from below
  Color color = {0.13, 0.15, 0.2};
  double room = 1e9;  ///< pixels; what is longer is cut
};

class Canvas {
 public:
  /// White. Throws std::bad_alloc where memory is short.
  Canvas(int width, int height);

  void fill(const Box& box, const Color& color);
  void outline(const Box& box, const Color& color);
  /// Diagonal lines inside of the box.
  void hatch(const Box& box, const Color& color);
  /// The point is on the text's middle line.
  void text(const Point& at, const std::string& text, const TextLook& look);
  double text_width(const std::string& text, const TextLook& look);

  std::vector<std::byte> png() const;

 private:
  void set_color(const Color& color);
  void select_font(const TextLook& look);

  std::unique_ptr<cairo_surface_t, decltype(&cairo_surface_destroy)> surface_;
  std::unique_ptr<cairo_t, decltype(&cairo_destroy)> context_;
};

}  // namespace qkv::lab
