#include "lab/experiment_json.h"

#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/overloaded.h"
#include "lab/experiment_check.h"
#include "lab/json_number.h"

namespace qkv::lab {
namespace {

using Json = nlohmann::ordered_json;

Json text_json(const Text& text) { return {{"en", text.english}, {"zh", text.chinese}}; }

Json text_json(const std::optional<Text>& text) { return text ? text_json(*text) : Json(nullptr); }

Json measured_json(const Measured& measured) {
  if (!measured.low && !measured.high) return json_number(measured.value);
  Json json = {{"value", json_number(measured.value)}};
  json["low"] = json_number(measured.low.value_or(measured.value));
  json["high"] = json_number(measured.high.value_or(measured.value));
  return json;
}

Json cell_json(const Cell& cell) {
  return std::visit(Overloaded{[](const Measured& value) { return measured_json(value); },
                               [](const Text& value) { return text_json(value); },
                               [](const auto& value) { return Json(value); }},
                    cell);
}

Json table_json(const Table& table) {
  Json columns = Json::array();
  for (const Column& column : table.columns) {
    columns.push_back(
        {{"key", column.key}, {"name", text_json(column.name)}, {"unit", text_json(column.unit)}});
  }
  Json rows = Json::array();
  for (const std::vector<Cell>& row : table.rows) {
    Json json;
    for (std::size_t c = 0; c < row.size(); ++c) json[table.columns[c].key] = cell_json(row[c]);
    rows.push_back(std::move(json));
  }
  return {{"key", table.key},
          {"title", text_json(table.title)},
          {"columns", std::move(columns)},
          {"rows", std::move(rows)}};
}

Json numbers_json(const std::vector<double>& values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(json_number(value));
  return list;
}

Json axis_json(const Axis& axis) {
  return {{"name", text_json(axis.name)}, {"logarithmic", axis.logarithmic}};
}

Json chart_json(const Chart& chart) {
  Json list = Json::array();
  for (const Series& series : chart.series) {
    list.push_back({{"name", text_json(series.name)},
                    {"x", numbers_json(series.x)},
                    {"y", numbers_json(series.y)},
                    {"low", numbers_json(series.low)},
                    {"high", numbers_json(series.high)}});
  }
  return {{"key", chart.key},
          {"title", text_json(chart.title)},
          {"x", axis_json(chart.x)},
          {"y", axis_json(chart.y)},
          {"series", std::move(list)}};
}

/// The shortest decimals that give the float back: as a double it would be written with 17 digits.
double decimals_of(float value) { return std::strtod(fmt::format("{}", value).c_str(), nullptr); }

Json heat_maps_json(const HeatMaps& maps) {
  Json variants = Json::array();
  for (const HeatMapVariant& variant : maps.variants) {
    Json values = Json::array();
    for (const float value : variant.values.elements()) {
      values.push_back(json_number(decimals_of(value)));
    }
    Json json = {{"name", text_json(variant.name)}, {"values", std::move(values)}};
    json["seen_shape"] = nullptr;
    json["seen"] = nullptr;
    if (!variant.seen.elements().empty()) {
      json["seen_shape"] = variant.seen.shape();
      json["seen"] = Json::array();
      for (const std::uint8_t seen : variant.seen.elements()) json["seen"].push_back(int{seen});
    }
    variants.push_back(std::move(json));
  }
  return {{"key", maps.key},
          {"title", text_json(maps.title)},
          {"shape", maps.variants.front().values.shape()},
          {"query_labels", maps.query_labels},
          {"key_labels", maps.key_labels},
          {"variants", std::move(variants)},
          {"predict", text_json(maps.predict)},
          {"reveal", text_json(maps.reveal)},
          {"start",
           {{"layer", maps.start.layer},
            {"sample", maps.start.sample},
            {"head", maps.start.head},
            {"shown", maps.start.shown},
            {"beside", maps.start.beside}}}};
}

Json token_maps_json(const TokenMaps& maps) {
  Json methods = Json::array();
  for (const TokenScores& method : maps.methods) {
    methods.push_back({{"name", text_json(method.name)}, {"scores", numbers_json(method.scores)}});
  }
  return {{"key", maps.key},
          {"title", text_json(maps.title)},
          {"tokens", maps.tokens},
          {"methods", std::move(methods)}};
}

Json effect_json(const Effect& effect) {
  return {{"key", effect.key},
          {"claim", text_json(effect.claim)},
          {"found", text_json(effect.found)},
          {"holds", effect.holds}};
}

template <class Parts, class ToJson>
Json list_json(const Parts& parts, ToJson to_json) {
  Json list = Json::array();
  for (const auto& part : parts) list.push_back(to_json(part));
  return list;
}

Json experiment_json(const Experiment& experiment) {
  check_experiment(experiment);
  return {{"name", experiment.name},
          {"section", experiment.section},
          {"command", experiment.command.value_or("qkv lab " + experiment.name)},
          {"title", text_json(experiment.title)},
          {"explanation", text_json(experiment.explanation)},
          {"effects", list_json(experiment.effects, effect_json)},
          {"tables", list_json(experiment.tables, table_json)},
          {"charts", list_json(experiment.charts, chart_json)},
          {"heat_maps", list_json(experiment.heat_maps, heat_maps_json)},
          {"token_maps", list_json(experiment.token_maps, token_maps_json)},
          {"seen", text_json(experiment.seen)}};
}

}  // namespace

std::string experiments_json(std::span<const Experiment> experiments,
                             const ExperimentOptions& options) {
  Json json;
  json["quick"] = options.quick;
  json["seed"] = options.seed;
  json["text"] = options.text_file ? Json(*options.text_file) : Json(nullptr);
  json["inject"] = options.inject ? Json(*options.inject) : Json(nullptr);
  json["experiments"] = list_json(experiments, experiment_json);
  // Paths and tokens of a text need not be UTF-8.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace qkv::lab
