// The page that `qkv lab --out` writes: one HTML file with its style, its scripts and its numbers, which asks the network for
// nothing.
#pragma once

#include <string>
#include <string_view>

namespace qkv::lab {

/// `results` is what experiments_json gives.
std::string page(std::string_view results);

}  // namespace qkv::lab
