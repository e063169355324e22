// Applying a corner to the sizes of a call.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "qkv/mask.h"

namespace qkv {

/// The offset of the diagonal for each sample; 0 without a corner. Throws std::invalid_argument
/// "operation: argument: …" where T and S differ and no corner is given, or where its offsets are neither one nor one a
/// sample. `user` completes the message: "a causal rule".
std::vector<Index> bind_corner(std::string_view operation, std::string_view argument,
                               std::string_view user, const std::optional<Corner>& corner,
                               const MaskShape& shape);

}  // namespace qkv
