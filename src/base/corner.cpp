#include "base/corner.h"

#include <fmt/format.h>

#include <stdexcept>

namespace qkv {

Diagonal bind_corner(std::string_view operation, std::string_view argument, std::string_view user,
                     const std::optional<Corner>& corner, const MaskShape& shape) {
  if (!corner && shape.queries != shape.keys) {
    throw std::invalid_argument(
        fmt::format("{}: {}: expected a corner (Corner::top_left() or Corner::bottom_right()) for "
                    "{} when T and S differ, got none with T={}, S={}",
                    operation, argument, user, shape.queries, shape.keys));
  }
  if (!corner) return {};
  const auto entries = static_cast<Index>(corner->offsets().size());
  if (entries > 1 && entries != shape.batch) {
    throw std::invalid_argument(fmt::format("{}: {}: expected 1 or B={} corner offsets, got {}",
                                            operation, argument, shape.batch, entries));
  }
  if (entries > 0) return {corner->offsets(), 0};
  return {{}, corner->offset(0, shape.queries, shape.keys)};
}

}  // namespace qkv
