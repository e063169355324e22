// The options that name a mask, shared by subcommands.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "lab/trace_source.h"

namespace qkv::cli {

/// As they are typed.
struct MaskTexts {
  std::string causal;  ///< empty, "square" or a corner
  std::string window;
  std::vector<Index> prefix_lengths;
  std::vector<Index> lengths;
};

/// --causal, --prefix, --window and --lengths.
void add_mask_options(CLI::App& command, const std::string& group, MaskTexts& texts);

/// Throws std::invalid_argument "operation: --option: expected …, got …".
lab::MaskOptions parse_mask(std::string_view operation, const MaskTexts& texts);

}  // namespace qkv::cli
