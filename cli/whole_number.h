// A check for options that take integers.
#pragma once

#include <charconv>
#include <limits>
#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "qkv/tensor.h"

namespace qkv::cli {

/// Refuses what is no integer of 64 bits (CLI11 alone takes the nearest one that fits) or is less than `least`.
inline CLI::Validator whole_number(Index least = std::numeric_limits<Index>::min()) {
  const auto problem = [least](const std::string& text) {
    Index value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc{} || stop != end) {
      return fmt::format("expected a whole number below 2^63, got \"{}\"", text);
    }
    if (value < least) return fmt::format("expected {} or more, got {}", least, value);
    return std::string();
  };
  return {problem, "", "whole number"};
}

}  // namespace qkv::cli
