#include "base/corner.h"

#include <fmt/format.h>

#include <stdexcept>

namespace qkv {

std::vector<Index> bind_corner(std::string_view operation, std::string_view argument,
                               std::string_view user, const std::optional<Corner>& corner,
                               const MaskShape& shape) {
  if (!corner && shape.queries != shape.keys) {
    throw std::invalid_argument(
        fmt::format("{}: {}: expected a corner (Corner::top_left() or Corner::bottom_right()) for "
                    "{} when T and S differ, got none with T={}, S={}",
                    operation, argument, user, shape.queries, shape.keys));
  }
  std::vector<Index> offsets(static_cast<std::size_t>(shape.batch), 0);
  if (!corner) return offsets;
  const auto entries = static_cast<Index>(corner->offsets().size());
  if (entries > 1 && entries != shape.batch) {
    throw std::invalid_argument(fmt::format("{}: {}: expected 1 or B={} corner offsets, got {}",
                                            operation, argument, shape.batch, entries));
  }
  for (Index b = 0; b < shape.batch; ++b) {
    offsets[static_cast<std::size_t>(b)] = corner->offset(b, shape.queries, shape.keys);
  }
  return offsets;
}

}  // namespace qkv
