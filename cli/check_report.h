// What `qkv check` prints of one dump: the verdict, where it is wrong, one row by hand, why, and how to fix it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "check/diagnosis.h"
#include "check/verdict.h"
#include "lab/text_style.h"

namespace qkv::cli {

/// One dump and everything that was found out about it. The dump outlives it.
struct CheckedDump {
  std::string file;
  std::string source;  ///< free text of the dump
  const Dump* dump = nullptr;
  Verdict verdict;
  std::optional<Diagnosis> diagnosis;

  /// Every tensor is within its bounds, and no bug explains what is left of it better than rounding does.
  bool matches() const { return verdict.matches && (!diagnosis || diagnosis->causes.empty()); }
};

std::string check_text(const CheckedDump& checked, const lab::TextStyle& style);
nlohmann::json check_json(const CheckedDump& checked);

/// `--list` and `--about`.
std::string bug_list_text(const lab::TextStyle& style);
nlohmann::json bug_list_json();

}  // namespace qkv::cli
