#include "cli/mask_options.h"

#include <fmt/format.h>

#include <charconv>
#include <stdexcept>

#include "cli/whole_number.h"

namespace qkv::cli {
namespace {

constexpr const char* kNoCorner = "square";

[[noreturn]] void fail(std::string_view operation, std::string_view option,
                       std::string_view expected, std::string_view got) {
  throw std::invalid_argument(
      fmt::format("{}: {}: expected {}, got \"{}\"", operation, option, expected, got));
}

std::optional<Corner> parse_corner(std::string_view operation, std::string_view option,
                                   const std::string& text) {
  if (text.empty() || text == kNoCorner) return std::nullopt;
  if (text == "top-left") return Corner::top_left();
  if (text == "bottom-right") return Corner::bottom_right();
  fail(operation, option, "a corner, top-left or bottom-right", text);
}

/// "N" or "N,CORNER".
Window parse_window(std::string_view operation, const std::string& text) {
  const std::size_t comma = text.find(',');
  const std::string number = text.substr(0, comma);
  Index side = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), side);
  if (error != std::errc{} || end != number.data() + number.size()) {
    fail(operation, "--window", "N or N,CORNER with a number of positions N", text);
  }
  const std::string corner = comma == std::string::npos ? "" : text.substr(comma + 1);
  return {side, side, parse_corner(operation, "--window", corner)};
}

}  // namespace

void add_mask_options(CLI::App& command, const std::string& group, MaskTexts& texts) {
  command
      .add_flag(fmt::format("--causal{{{}}}", kNoCorner), texts.causal,
                "No query sees later keys; with T != S say where the diagonal lies: "
                "--causal=top-left or --causal=bottom-right")
      ->group(group);
  command
      .add_option("--prefix", texts.prefix_lengths,
                  "Causal, but the first N keys are visible to all; one N, or one a sample (3,5)")
      ->check(whole_number())
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group(group);
  command
      .add_option("--window", texts.window,
                  "Only keys up to N positions away; with T != S N,CORNER")
      ->group(group);
  command
      .add_option("--lengths", texts.lengths,
                  "Keys that are no padding, one number or one a sample (5,3)")
      ->check(whole_number())
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group(group);
}

lab::MaskOptions parse_mask(std::string_view operation, const MaskTexts& texts) {
  lab::MaskOptions mask;
  mask.causal = !texts.causal.empty();
  mask.corner = parse_corner(operation, "--causal", texts.causal);
  mask.prefix_lengths = texts.prefix_lengths;
  if (!texts.window.empty()) mask.window = parse_window(operation, texts.window);
  mask.lengths = texts.lengths;
  return mask;
}

}  // namespace qkv::cli
