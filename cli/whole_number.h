// A check for options that take integers.
#pragma once

#include <charconv>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "qkv/tensor.h"

namespace qkv::cli {

/// Refuses what is no integer of 64 bits; CLI11 alone takes the nearest one that fits.
inline CLI::Validator whole_number() {
  const auto problem = [](const std::string& text) {
    Index value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc{} && stop == end) return std::string();
    return fmt::format("expected a whole number below 2^63, got \"{}\"", text);
  };
  return {problem, "", "whole number"};
}

}  // namespace qkv::cli
