#include <cmath>

#include "check/bug_text.h"
#include "check/where.h"
#include "cli/check_report.h"

namespace qkv::cli {
namespace {

using nlohmann::json;

/// JSON has no infinity.
json number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
}

json where_json(const TensorVerdict& tensor) {
  const Where where = where_of(tensor);
  return {{"tensor", tensor.name},
          {"samples", where.samples},
          {"heads", where.heads},
          {"rows", where.rows},
          {where.column_name + "s", where.columns},
          {"text", describe(where)}};
}

json part_json(const WrongPart& part) {
  return {{"axis", part.axis},
          {"begin", part.begin},
          {"end", part.end},
          {"rms_units", number(part.rms_units)},
          {"allowed", number(part.rms_allowed)}};
}

json tensor_json(const TensorVerdict& tensor) {
  json result = {{"name", tensor.name},
                 {"matches", tensor.matches},
                 {"compared", tensor.compared},
                 {"beyond", tensor.beyond},
                 {"not_finite", tensor.not_finite},
                 {"largest_error", number(tensor.largest_error)},
                 {"largest_error_units", number(tensor.largest_units)},
                 {"allowed_units", number(tensor.largest_allowed)},
                 {"largest_at", tensor.largest_at},
                 {"rms_units", number(tensor.rms_units)},
                 {"allowed_rms_units", number(tensor.rms_allowed)}};
  for (const WrongPart& part : tensor.wrong_parts) result["wrong_parts"].push_back(part_json(part));
  return result;
}

json distance_json(const Distance& distance) {
  return {{"rms_units", number(distance.rms)}, {"largest_units", number(distance.max)}};
}

json cause_json(const Cause& cause, const std::vector<Cause>& all) {
  json result = {{"id", cause.ids.empty() ? "" : cause.ids.front()},
                 {"ids", cause.ids},
                 {"variant", cause.text},
                 {"parameters", json::object()},
                 {"evidence", distance_json(cause.distance)},
                 {"policy", cause.policy},
                 {"aliases", json::array()}};
  for (const auto& [name, value] : cause.parameters) result["parameters"][name] = number(value);
  for (const Cause& other : all) {
    if (&other != &cause) result["aliases"].push_back(other.ids);
  }
  if (!cause.ids.empty()) {
    if (const BugText* bug = find_bug_text(cause.ids.front())) {
      result["title"] = bug->title;
      result["fix"] = bug->short_fix();
    }
  }
  return result;
}

}  // namespace

nlohmann::json check_json(const CheckedDump& checked) {
  const TensorVerdict& worst = checked.verdict.worst();
  json result = {{"file", checked.file},
                 {"verdict", checked.matches() ? "matches" : "differs"},
                 {"largest_error_units", number(worst.largest_units)},
                 {"rms_units", number(worst.rms_units)},
                 {"dtype", name_of(checked.dump->ran_in)},
                 {"inferred", checked.dump->inferred},
                 {"tensors", json::array()},
                 {"where", nullptr}};
  if (!checked.source.empty()) result["source"] = checked.source;
  for (const auto& tensor : checked.verdict.tensors)
    result["tensors"].push_back(tensor_json(tensor));
  if (!checked.matches()) result["where"] = where_json(worst);
  if (!checked.diagnosis) return result;

  const Diagnosis& diagnosis = *checked.diagnosis;
  result["intended"] = distance_json(diagnosis.intended);
  result["facts"] = diagnosis.facts;
  result["remarks"] = diagnosis.remarks;
  result["separation"] = diagnosis.separation;
  result["diagnoses"] = json::array();
  for (const Cause& cause : diagnosis.causes) {
    result["diagnoses"].push_back(cause_json(cause, diagnosis.causes));
  }
  result["rivals"] = json::array();
  for (const Rival& rival : diagnosis.rivals) {
    result["rivals"].push_back(
        {{"ids", rival.ids}, {"variant", rival.text}, {"evidence", distance_json(rival.distance)}});
  }
  result["not_shown"] = json::array();
  for (const NotShown& one : diagnosis.not_shown) {
    result["not_shown"].push_back({{"id", one.id}, {"reason", one.reason}});
  }
  return result;
}

nlohmann::json bug_list_json() {
  json result = json::array();
  for (const BugText& bug : bug_texts()) {
    result.push_back({{"id", bug.id}, {"title", bug.title}, {"fix", bug.short_fix()}});
  }
  return result;
}

}  // namespace qkv::cli
