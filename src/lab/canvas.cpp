#include "lab/canvas.h"

#include <cmath>
#include <new>
#include <numbers>
#include <stdexcept>

#include "lab/text_style.h"

namespace qkv::lab {
namespace {

void check(cairo_status_t status) {
  if (status == CAIRO_STATUS_SUCCESS) return;
  if (status == CAIRO_STATUS_NO_MEMORY) throw std::bad_alloc();
  throw std::runtime_error(std::string("trace: picture: cairo: ") + cairo_status_to_string(status));
}

cairo_status_t append(void* closure, const unsigned char* data, unsigned int length) noexcept {
  try {
    auto& bytes = *static_cast<std::vector<std::byte>*>(closure);
    const auto* begin = reinterpret_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), begin, begin + length);
    return CAIRO_STATUS_SUCCESS;
  } catch (...) {  // nothing may be thrown through cairo
    return CAIRO_STATUS_NO_MEMORY;
  }
}

}  // namespace

Canvas::Canvas(int width, int height)
    : surface_(cairo_image_surface_create(CAIRO_FORMAT_RGB24, width, height),
               cairo_surface_destroy),
      context_(cairo_create(surface_.get()), cairo_destroy) {
  check(cairo_status(context_.get()));
  set_color({1, 1, 1});
  cairo_paint(context_.get());
}

void Canvas::set_color(const Color& color) {
  cairo_set_source_rgb(context_.get(), color.red, color.green, color.blue);
}

void Canvas::fill(const Box& box, const Color& color) {
  set_color(color);
  cairo_rectangle(context_.get(), box.x, box.y, box.width, box.height);
  cairo_fill(context_.get());
}

void Canvas::outline(const Box& box, const Color& color) {
  set_color(color);
  cairo_set_line_width(context_.get(), 1);
  cairo_rectangle(context_.get(), box.x - 0.5, box.y - 0.5, box.width + 1, box.height + 1);
  cairo_stroke(context_.get());
}

void Canvas::hatch(const Box& box, const Color& color) {
  constexpr double kSpacing = 6;
  cairo_t* context = context_.get();
  cairo_save(context);
  cairo_rectangle(context, box.x, box.y, box.width, box.height);
  cairo_clip(context);
  set_color(color);
  cairo_set_line_width(context, 1);
  // On one grid for the whole picture, so that the lines of neighbours meet.
  const double end = box.x + box.width + box.y + box.height;
  const double first = std::floor((box.x + box.y) / kSpacing) * kSpacing;
  for (double sum = first; sum <= end; sum += kSpacing) {
    cairo_move_to(context, sum - box.y, box.y);
    cairo_line_to(context, sum - box.y - box.height, box.y + box.height);
  }
  cairo_stroke(context);
  cairo_restore(context);
}

void Canvas::select_font(const TextLook& look) {
  cairo_select_font_face(context_.get(), "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                         look.bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
  cairo_set_font_size(context_.get(), look.size);
}

double Canvas::text_width(const std::string& text, const TextLook& look) {
  select_font(look);
  cairo_text_extents_t extents{};
  cairo_text_extents(context_.get(), text.c_str(), &extents);
  return extents.x_advance;
}

void Canvas::text(const Point& at, const std::string& text, const TextLook& look) {
  std::string shown = text;
  for (std::size_t columns = display_width(text);
       columns > 1 && text_width(shown, look) > look.room; --columns) {
    shown = clip(text, columns);
  }
  const double width = text_width(shown, look);
  cairo_font_extents_t font{};
  cairo_font_extents(context_.get(), &font);
  const double shift =
      look.anchor == Anchor::Start ? 0 : (look.anchor == Anchor::Middle ? width / 2 : width);
  cairo_t* context = context_.get();
  cairo_save(context);
  cairo_translate(context, at.x, at.y);
  if (look.upwards) cairo_rotate(context, -std::numbers::pi / 2);
  cairo_move_to(context, -shift, (font.ascent - font.descent) / 2);
  set_color(look.color);
  cairo_show_text(context, shown.c_str());
  cairo_restore(context);
}

std::vector<std::byte> Canvas::png() const {
  check(cairo_status(context_.get()));
  std::vector<std::byte> bytes;
  check(cairo_surface_write_to_png_stream(surface_.get(), append, &bytes));
  return bytes;
}

}  // namespace qkv::lab
