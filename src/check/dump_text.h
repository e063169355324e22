// The metadata of a dump: texts by key, read as what they mean.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "check/dump_names.h"
#include "qkv/io.h"

namespace qkv {

inline constexpr Index kMostDumpHeads = Index{1} << 24;
/// Of positions: no sum of two of them overflows.
inline constexpr Index kMostDumpKeys = Index{1} << 53;

/// The values that a key may have, and what each means.
template <class Value>
using DumpChoices = std::vector<std::pair<std::string_view, Value>>;

class DumpText {
 public:
  /// Of the file's metadata and its tensor `metadata`. Throws where a key is unknown or stands in both, or
  /// where the tensor holds no JSON object of texts, numbers and booleans.
  explicit DumpText(const TensorFile& file);

  bool has(const std::string& key) const { return entries_.contains(key); }
  std::optional<std::string> text(const std::string& key) const;
  /// Throws where it is no finite number.
  std::optional<double> number(const std::string& key) const;
  std::optional<double> positive_number(const std::string& key) const;
  /// Throws where it is no integer from `least` to `most`.
  std::optional<Index> whole_number(const std::string& key, Index least, Index most) const;

  template <class Value>
  std::optional<Value> choice(const std::string& key, const DumpChoices<Value>& choices) const {
    const auto entry = entries_.find(key);
    if (entry == entries_.end()) return std::nullopt;
    for (const auto& [name, value] : choices) {
      if (entry->second == name) return value;
    }
    std::string names;
    for (const auto& [name, value] : choices) {
      names += (names.empty() ? "" : " or ") + std::string(name);
    }
    fail(key, names, entry->second);
  }

  /// Throws "dump: key: expected …, got …".
  [[noreturn]] static void fail(const std::string& key, std::string_view expected,
                                std::string_view got);

 private:
  void add(const std::string& key, const std::string& value);
  void add_json(const StoredTensor& tensor);

  std::map<std::string, std::string> entries_;
};

}  // namespace qkv
