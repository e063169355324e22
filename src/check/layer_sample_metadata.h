// What the metadata of a recorded layer say.
#pragma once

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <string_view>

#include "qkv/io.h"
#include "qkv/mask.h"
#include "qkv/rotary.h"

namespace qkv::layer_sample {

[[noreturn]] void fail(std::string_view argument, std::string_view expected, std::string_view got);

/// A positive number; nothing where the entry is absent.
template <class Number>
std::optional<Number> read_number(const TensorFile& file, const std::string& key);

/// The entry as JSON of the wanted type, or a default value where it is absent.
template <class Value>
Value read_json(const TensorFile& file, const std::string& key, std::string_view expected) {
  const auto entry = file.metadata.find(key);
  if (entry == file.metadata.end()) return {};
  const auto json = nlohmann::json::parse(entry->second, nullptr, /*allow_exceptions=*/false);
  try {
    return json.template get<Value>();
  } catch (const nlohmann::json::exception&) {
    fail("metadata \"" + key + "\"", expected, "something else");
  }
}

Mask read_causal(const TensorFile& file);
std::optional<RotaryOptions> read_rotary(const TensorFile& file);

}  // namespace qkv::layer_sample
