// Numbers in JSON, which has no infinity and no NaN.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>

namespace qkv::lab {

/// "Infinity", "-Infinity" and "NaN" are strings.
inline nlohmann::ordered_json json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

}  // namespace qkv::lab
