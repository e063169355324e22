// The page without its numbers, put together at build time from src/lab/page.
#pragma once

#include <span>
#include <string_view>

namespace qkv::lab {

/// Up to where the numbers go, and from there on.
std::span<const std::string_view> page_before_results();
std::span<const std::string_view> page_after_results();

}  // namespace qkv::lab
