#include "model/json_object.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "io/file_map.h"
#include "qkv/error.h"

namespace qkv {
namespace {

using Json = nlohmann::json;

/// As it stands in the file, cut where it is long.
std::string shown(const Json& json) {
  constexpr std::size_t kLongest = 60;
  if (json.is_object()) return "an object";
  if (json.is_array()) return "a list";
  std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

std::shared_ptr<const Json> parse(const std::string& path) {
  const FileBytes file = map_file(path);
  const auto* text = reinterpret_cast<const char*>(file.bytes.data());
  try {
    return std::make_shared<const Json>(Json::parse(text, text + file.bytes.size()));
  } catch (const Json::parse_error& error) {
    throw FileError(path, "expected JSON, got something else", error.byte);
  } catch (const Json::out_of_range&) {
    throw FileError(path, "expected numbers of float64, got one that is too large for it");
  }
}

}  // namespace

JsonObject::JsonObject(std::string path, std::string place, std::shared_ptr<const Json> json)
    : path_(std::move(path)), place_(std::move(place)), json_(std::move(json)) {}

JsonObject JsonObject::read(const std::string& path) {
  JsonObject file(path, "", parse(path));
  if (!file.json_->is_object()) {
    throw FileError(path, fmt::format("expected an object, got {}", shown(*file.json_)));
  }
  return file;
}

std::vector<JsonObject> JsonObject::read_list(const std::string& path) {
  const JsonObject file(path, "", parse(path));
  if (!file.json_->is_array()) {
    throw FileError(path, fmt::format("expected a list, got {}", shown(*file.json_)));
  }
  std::vector<JsonObject> items;
  for (std::size_t i = 0; i < file.json_->size(); ++i) {
    items.push_back(file.part(fmt::format("[{}]", i), (*file.json_)[i]));
  }
  return items;
}

const Json* JsonObject::find(std::string_view field) const {
  const auto found = json_->find(std::string(field));
  return found == json_->end() || found->is_null() ? nullptr : &*found;
}

void JsonObject::refuse(std::string_view field, std::string_view expected,
                        std::string_view got) const {
  throw FileError(path_, fmt::format("{}{}: expected {}, got {}", place_, field, expected, got));
}

std::optional<Index> JsonObject::whole_number(std::string_view field) const {
  const Json* json = find(field);
  if (json == nullptr) return std::nullopt;
  // An unsigned number beyond the signed ones would come out negative.
  if (!json->is_number_integer() || (json->is_number_unsigned() && json->get<Index>() < 0)) {
    refuse(field, "a whole number", shown(*json));
  }
  return json->get<Index>();
}

std::optional<double> JsonObject::number(std::string_view field) const {
  const Json* json = find(field);
  if (json == nullptr) return std::nullopt;
  if (!json->is_number()) refuse(field, "a number", shown(*json));
  return json->get<double>();
}

std::optional<bool> JsonObject::boolean(std::string_view field) const {
  const Json* json = find(field);
  if (json == nullptr) return std::nullopt;
  if (!json->is_boolean()) refuse(field, "true or false", shown(*json));
  return json->get<bool>();
}

std::optional<std::string> JsonObject::text(std::string_view field) const {
  const Json* json = find(field);
  if (json == nullptr) return std::nullopt;
  if (!json->is_string()) refuse(field, "a text", shown(*json));
  return json->get<std::string>();
}

JsonObject JsonObject::part(std::string_view field, const Json& json) const {
  if (!json.is_object()) refuse(field, "an object", shown(json));
  return {path_, fmt::format("{}{}.", place_, field), std::shared_ptr<const Json>(json_, &json)};
}

std::optional<JsonObject> JsonObject::object(std::string_view field) const {
  const Json* json = find(field);
  if (json == nullptr) return std::nullopt;
  return part(field, *json);
}

std::optional<std::vector<JsonObject>> JsonObject::objects(std::string_view field) const {
  const Json* json = find(field);
  if (json == nullptr) return std::nullopt;
  if (!json->is_array()) refuse(field, "a list", shown(*json));
  std::vector<JsonObject> items;
  for (std::size_t i = 0; i < json->size(); ++i) {
    items.push_back(part(fmt::format("{}[{}]", field, i), (*json)[i]));
  }
  return items;
}

}  // namespace qkv
