#include "check/dump_text.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "io/tensor_layout.h"

namespace qkv {
namespace {

/// The whole text as a number, or nothing.
template <class Number>
std::optional<Number> parse(const std::string& text) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || stopped != end) return std::nullopt;
  return number;
}

}  // namespace

DumpText::DumpText(const TensorFile& file) {
  for (const auto& [key, value] : file.metadata) add(key, value);
  const auto tensor = file.tensors.find(std::string(kDumpMetadataTensor));
  if (tensor != file.tensors.end()) add_json(tensor->second);
}

void DumpText::add(const std::string& key, const std::string& value) {
  check_dump_key(key);
  // Python writes a boolean so.
  const std::string text = value == "True" ? "true" : value == "False" ? "false" : value;
  if (!entries_.emplace(key, text).second) {
    fail(key, "one value", "one in the file's metadata and one in the tensor \"metadata\"");
  }
}

void DumpText::add_json(const StoredTensor& tensor) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 20;
  const std::string name(kDumpMetadataTensor);
  if (tensor.dtype() != DType::UInt8 || tensor.shape().size() != 1 ||
      tensor.bytes().size() > kMostBytes) {
    fail(name, fmt::format("a uint8 tensor of one axis and at most {} bytes", kMostBytes),
         fmt::format("{} {}", name_of(tensor.dtype()), to_string(tensor.shape())));
  }
  const auto json = nlohmann::json::parse(as_text(tensor.bytes()), nullptr,
                                          /*allow_exceptions=*/false);
  if (!json.is_object()) {
    fail(name, "a JSON object", json.is_discarded() ? "what is no JSON" : json.type_name());
  }
  for (const auto& [key, value] : json.items()) {
    if (value.is_string()) {
      add(key, value.get<std::string>());
    } else if (value.is_number() || value.is_boolean()) {
      add(key, value.dump());
    } else {
      check_dump_key(key);
      fail(key, "a text, a number or a boolean", value.type_name());
    }
  }
}

std::optional<std::string> DumpText::text(const std::string& key) const {
  const auto entry = entries_.find(key);
  if (entry == entries_.end()) return std::nullopt;
  return entry->second;
}

std::optional<double> DumpText::number(const std::string& key) const {
  const auto value = text(key);
  if (!value) return std::nullopt;
  const auto number = parse<double>(*value);
  if (!number || !std::isfinite(*number)) fail(key, "a finite number", *value);
  return number;
}

std::optional<double> DumpText::positive_number(const std::string& key) const {
  const auto value = number(key);
  if (value && *value <= 0) fail(key, "a positive number", *text(key));
  return value;
}

std::optional<Index> DumpText::whole_number(const std::string& key, Index least, Index most) const {
  const auto value = text(key);
  if (!value) return std::nullopt;
  const auto number = parse<Index>(*value);
  if (!number || *number < least || *number > most) {
    fail(key, fmt::format("a whole number from {} to {}", least, most), *value);
  }
  return number;
}

void DumpText::fail(const std::string& key, std::string_view expected, std::string_view got) {
  fail_dump(key, fmt::format("expected {}, got {}", expected, in_quotes(got)));
}

}  // namespace qkv
