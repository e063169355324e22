// How `qkv align` prints: a table for people, JSON for machines.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "check/align_compare.h"
#include "check/sample_align.h"

namespace qkv::cli {

/// What was compared with what.
struct AlignSetting {
  std::vector<std::string> versions;  ///< of the peers that were asked
  std::vector<std::string> missing;   ///< why others were not
};

std::string align_header(const AlignSetting& setting);
/// The case on a line of its own, a row below it for each function and dtype.
std::string align_table(const AlignCase& align_case, const std::vector<AlignRow>& rows);
/// One sentence.
std::string align_footer(const std::vector<AlignRow>& rows);
nlohmann::json align_json(const AlignSetting& setting, const std::vector<AlignRow>& rows);
nlohmann::json align_json(const AlignCase& align_case);

struct NamedSampleReport {
  std::string file;
  SampleReport report;
};

std::string sample_table(const NamedSampleReport& sample);
/// One sentence.
std::string sample_footer(const std::vector<NamedSampleReport>& samples);
nlohmann::json sample_json(const std::vector<NamedSampleReport>& samples);

}  // namespace qkv::cli
