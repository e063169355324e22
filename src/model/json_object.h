// Fields of a JSON file, checked as they are read.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/tensor.h"

namespace qkv {

/// An object of a JSON file. A field that holds null is absent; one of another type than asked for is a FileError that names
/// file and field.
class JsonObject {
 public:
  /// Throws FileError where the file cannot be read or does not hold one object.
  static JsonObject read(const std::string& path);
  /// The same of a list of objects.
  static std::vector<JsonObject> read_list(const std::string& path);

  std::optional<Index> whole_number(std::string_view field) const;
  std::optional<double> number(std::string_view field) const;
  std::optional<bool> boolean(std::string_view field) const;
  std::optional<std::string> text(std::string_view field) const;
  std::optional<JsonObject> object(std::string_view field) const;
  /// A list's items, each of which must be an object.
  std::optional<std::vector<JsonObject>> objects(std::string_view field) const;

  /// Throws FileError.
  [[noreturn]] void refuse(std::string_view field, std::string_view expected,
                           std::string_view got) const;

  const std::string& path() const noexcept { return path_; }
  const nlohmann::json& json() const noexcept { return *json_; }

 private:
  JsonObject(std::string path, std::string place, std::shared_ptr<const nlohmann::json> json);
  /// Null where absent.
  const nlohmann::json* find(std::string_view field) const;
  JsonObject part(std::string_view field, const nlohmann::json& json) const;

  std::string path_;
  std::string place_;  // of the object in the file: "model."
  std::shared_ptr<const nlohmann::json> json_;
};

}  // namespace qkv
