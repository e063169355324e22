#include "check/layer_sample_metadata.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <stdexcept>

namespace qkv::layer_sample {

void fail(std::string_view argument, std::string_view expected, std::string_view got) {
  throw std::invalid_argument(
      fmt::format("layer sample: {}: expected {}, got {}", argument, expected, got));
}

template <class Number>
std::optional<Number> read_number(const TensorFile& file, const std::string& key) {
  const auto entry = file.metadata.find(key);
  if (entry == file.metadata.end()) return std::nullopt;
  const std::string& text = entry->second;
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || !(number > Number{0}) ||
      number > std::numeric_limits<Number>::max()) {
    fail(fmt::format("metadata \"{}\"", key), "a positive number", fmt::format("\"{}\"", text));
  }
  return number;
}

template std::optional<Index> read_number(const TensorFile& file, const std::string& key);
template std::optional<double> read_number(const TensorFile& file, const std::string& key);

Mask read_causal(const TensorFile& file) {
  const auto entry = file.metadata.find("causal");
  if (entry == file.metadata.end()) return {};
  const std::string_view text = entry->second;
  if (text.starts_with("top-left")) return Mask::causal(Corner::top_left());
  if (text.starts_with("bottom-right")) return Mask::causal(Corner::bottom_right());
  fail("metadata \"causal\"", "\"top-left\" or \"bottom-right\"", fmt::format("\"{}\"", text));
}

std::optional<RotaryOptions> read_rotary(const TensorFile& file) {
  const auto base = read_number<double>(file, "rope_theta");
  if (!base) return std::nullopt;
  const auto entry = file.metadata.find("rope_pairing");
  const std::string pairing = entry == file.metadata.end() ? "" : entry->second;
  RotaryOptions options;
  options.base = *base;
  if (pairing == "i with i+head_dim/2") {
    options.pairing = RotaryPairing::Halves;
  } else if (pairing == "2i with 2i+1") {
    options.pairing = RotaryPairing::Interleaved;
  } else {
    fail("metadata \"rope_pairing\"", "\"i with i+head_dim/2\" or \"2i with 2i+1\"",
         fmt::format("\"{}\"", pairing));
  }
  return options;
}

}  // namespace qkv::layer_sample
