#include "cli/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "cli/mask_options.h"
#include "cli/terminal.h"
#include "cli/whole_number.h"
#include "lab/heat_map_png.h"
#include "lab/trace.h"
#include "lab/trace_json.h"
#include "lab/trace_source.h"
#include "lab/trace_text.h"

namespace qkv::cli {
namespace {

/// The command line, as it is typed.
struct TraceOptions {
  std::string file;
  lab::FileOptions from_file;
  std::string true_means;

  lab::SizeOptions sizes;
  lab::TypedOptions typed;
  std::optional<Index> heads;
  std::optional<Index> kv_heads;
  std::optional<double> scale;

  MaskTexts mask;

  lab::TraceChoice choice;
  std::string binning = "max";
  std::string color = "auto";
  bool json = false;
  std::string png;
  double max_memory = 4;  ///< GiB

  std::vector<CLI::Option*> size_options;  ///< any of them asks for given sizes
};

constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;

[[noreturn]] void fail(std::string_view option, std::string_view expected, std::string_view got) {
  throw std::invalid_argument(fmt::format("trace: {}: expected {}, got {}", option, expected, got));
}

bool is_typed(const TraceOptions& options) {
  const lab::TypedOptions& typed = options.typed;
  return typed.input || typed.query || typed.key || typed.value;
}

lab::TraceInput read_input(const TraceOptions& options, double memory_limit) {
  const bool sized = std::any_of(options.size_options.begin(), options.size_options.end(),
                                 [](const CLI::Option* option) { return option->count() > 0; });
  const int ways = (options.file.empty() ? 0 : 1) + (is_typed(options) ? 1 : 0) + (sized ? 1 : 0);
  if (ways > 1) {
    fail("input", "one of a file, --type (or --q, --k, --v), and sizes (--batch, --tokens, …)",
         "more than one");
  }
  if (!options.file.empty()) {
    lab::FileOptions file = options.from_file;
    file.heads = options.heads;
    file.kv_heads = options.kv_heads;
    file.scale = options.scale;
    if (!options.true_means.empty()) {
      file.true_means = options.true_means == "keep" ? Polarity::Keep : Polarity::Drop;
    }
    return lab::trace_file(options.file, file);
  }
  if (options.from_file.mask_tensor || options.from_file.bias_tensor) {
    fail("--mask-tensor, --bias-tensor", "a file that holds the tensor", "none");
  }
  if (is_typed(options)) {
    lab::TypedOptions typed = options.typed;
    typed.heads = options.heads.value_or(typed.heads);
    typed.kv_heads = options.kv_heads;
    typed.scale = options.scale;
    return lab::trace_typed(typed);
  }
  if (!sized && !options.heads) {
    fail("input",
         "a file, --type \"1 0; 0 1\" or sizes (--batch 2 --tokens 5 --model 16 --heads 4)",
         "nothing");
  }
  lab::SizeOptions sizes = options.sizes;
  sizes.heads = options.heads.value_or(sizes.heads);
  sizes.kv_heads = options.kv_heads;
  sizes.scale = options.scale;
  return lab::trace_sizes(sizes, memory_limit);
}

void write_picture(const TraceOptions& options, const lab::Trace& trace) {
  std::error_code missing;  // a path that does not exist is the same as no other
  if (!options.file.empty() && std::filesystem::equivalent(options.png, options.file, missing)) {
    fail("--png", "another file than the one that is read", options.png);
  }
  lab::PictureOptions picture;
  picture.sample = options.choice.sample;
  picture.heads = lab::chosen_heads(trace, options.choice);
  picture.binning = options.choice.binning;
  lab::write_heat_map_png(options.png, trace, picture);
}

ExitCode run(TraceOptions& options) {
  if (!(options.max_memory > 0)) {
    fail("--max-memory", "a positive number of GiB", fmt::format("{}", options.max_memory));
  }
  const double memory_limit = options.max_memory * kGibibyte;
  options.choice.binning = options.binning == "mean" ? lab::Binning::Mean : lab::Binning::Max;
  lab::TraceInput input = read_input(options, memory_limit);
  lab::add_mask(input, parse_mask("trace", options.mask));
  const lab::Trace trace = lab::trace(input, memory_limit);
  if (is_typed(options) && !options.choice.query) options.choice.query = trace.sizes.queries - 1;

  if (!options.png.empty()) write_picture(options, trace);
  if (options.json) {
    fmt::print("{}", lab::trace_json(trace, options.choice));
  } else {
    const lab::TextStyle style{wants_color(options.color), text_width()};
    fmt::print("{}", lab::trace_text(trace, options.choice, style));
  }
  const bool all_within =
      std::all_of(trace.comparisons.begin(), trace.comparisons.end(),
                  [](const lab::Comparison& entry) { return entry.within_tolerance; });
  return all_within ? Ok : DifferenceFound;
}

void add_input_options(CLI::App& command, TraceOptions& options) {
  command.add_option(
      "file", options.file,
      "A layer sample (.safetensors or .npz): x with the weights of its projections, "
      "or q, k and v [B,H,T,D], or both");
  command.add_option("--heads", options.heads, "Query heads H, where a file does not say")
      ->check(whole_number());
  command
      .add_option("--kv-heads", options.kv_heads,
                  "Key/value heads, a divisor of H; H where not given")
      ->check(whole_number());
  command.add_option("--scale", options.scale, "Scale of the scores; 1/sqrt(Dh) where not given");
  command
      .add_option("--max-memory", options.max_memory,
                  "GiB that a trace may take; larger sizes are refused")
      ->capture_default_str();

  const auto sized = [&](CLI::Option* option) {
    option->check(whole_number())->group("Given sizes, random numbers");
    options.size_options.push_back(option);
    return option;
  };
  sized(command.add_option("--batch", options.sizes.batch, "Samples B"))->capture_default_str();
  sized(command.add_option("--tokens", options.sizes.tokens, "Tokens T"))->capture_default_str();
  sized(command.add_option("--model", options.sizes.model_width, "Width D of a token"))
      ->capture_default_str();
  sized(command.add_option("--keys", options.sizes.keys,
                           "Tokens S of a second input that keys and values come from (cross "
                           "attention)"));
  sized(command.add_option("--seed", options.sizes.seed, "Seed of the numbers"))
      ->check(whole_number(0))
      ->capture_default_str();

  const char* typed = "Numbers typed in, one query worked out step by step";
  command
      .add_option("--type", options.typed.input,
                  "Up to 6 tokens x, one row each: \"1 0; 0 1; 1 1\". Query, key and value are x")
      ->group(typed);
  command.add_option("--q", options.typed.query, "Queries instead of x, one row each")
      ->group(typed);
  command.add_option("--k", options.typed.key, "Keys instead of x")->group(typed);
  command.add_option("--v", options.typed.value, "Values instead of x")->group(typed);
  command
      .add_option("--query", options.choice.query,
                  "The query to work out (the last one of typed tokens); works on any input")
      ->check(whole_number())
      ->group(typed);
}

void add_mask_options(CLI::App& command, TraceOptions& options) {
  const char* group = "Mask (added to what a file says itself)";
  add_mask_options(command, group, options.mask);
  CLI::Option* mask_tensor =
      command
          .add_option("--mask-tensor", options.from_file.mask_tensor,
                      "Boolean tensor of the file that broadcasts to [B,H,T,S]; needs --true-means")
          ->group(group);
  command
      .add_option("--true-means", options.true_means,
                  "Whether true keeps or drops a position: libraries disagree")
      ->check(CLI::IsMember({"keep", "drop"}))
      ->needs(mask_tensor)
      ->group(group);
  command
      .add_option("--bias-tensor", options.from_file.bias_tensor,
                  "Tensor of the file that is added to the scores, broadcasts to [B,H,T,S]")
      ->group(group);
}

void add_display_options(CLI::App& command, TraceOptions& options) {
  const char* group = "What is shown";
  command.add_option("--sample", options.choice.sample, "Which sample")
      ->check(whole_number())
      ->capture_default_str()
      ->group(group);
  command.add_option("--head", options.choice.heads, "Which heads (2,5); all where not given")
      ->check(whole_number())
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group(group);
  command
      .add_option("--bin", options.binning,
                  "What a heat map's cell shows of several weights: max or mean")
      ->check(CLI::IsMember({"max", "mean"}))
      ->capture_default_str()
      ->group(group);
  command.add_option("--color", options.color, "always, never or auto (NO_COLOR is respected)")
      ->check(CLI::IsMember({"always", "never", "auto"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_flag("--json", options.json,
                "Everything as JSON instead; numbers that are not finite are the strings "
                "\"Infinity\", \"-Infinity\" and \"NaN\"")
      ->group(group);
  command.add_option("--png", options.png, "Write the heat maps as a picture to this file")
      ->group(group);
}

}  // namespace

Command add_trace_command(CLI::App& app) {
  const auto options = std::make_shared<TraceOptions>();
  CLI::App* command = app.add_subcommand(
      "trace", "Show the six shapes of attention, its mask, heat maps and what usually goes wrong");
  command->footer(
      "Exit code: 0, or 1 where the file holds results that differ from ours by more than 1e-5, or "
      "2 on bad input.");
  add_input_options(*command, *options);
  add_mask_options(*command, *options);
  add_display_options(*command, *options);
  return {command, [options] { return run(*options); }};
}

}  // namespace qkv::cli
