#include "lab/trace_json.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>

#include "lab/json_number.h"
#include "lab/trace_walk.h"

namespace qkv::lab {
namespace {

using Json = nlohmann::ordered_json;

Json numbers(const std::vector<double>& values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(json_number(value));
  return list;
}

/// A view as nested lists, axis by axis.
template <class T, int Rank>
Json nested(const TensorView<const T, Rank>& view, std::size_t axis = 0,
            std::ptrdiff_t offset = 0) {
  Json list = Json::array();
  for (Index i = 0; i < view.shape()[axis]; ++i) {
    const std::ptrdiff_t next = offset + i * view.strides()[axis];
    if (axis + 1 < static_cast<std::size_t>(Rank)) {
      list.push_back(nested(view, axis + 1, next));
    } else {
      list.push_back(json_number(view.data()[next]));
    }
  }
  return list;
}

/// Head by head, those that were chosen: entries [sample, head, …].
template <int Rank>
Json of_heads(const Tensor<double, Rank>& tensor, const TraceChoice& choice,
              const std::vector<Index>& heads) {
  Json list = Json::array();
  if (tensor.shape(0) == 0) return list;
  for (const Index head : heads) {
    const auto slice = tensor.view().slice(0, choice.sample, choice.sample + 1);
    list.push_back(nested(slice.slice(1, head, head + 1))[0][0]);
  }
  return list;
}

Json visible(const Trace& trace, const TraceChoice& choice, const std::vector<Index>& heads) {
  Json list = Json::array();
  if (trace.sizes.batch == 0) return list;
  for (const Index head : heads) {
    Json rows = Json::array();
    for (Index t = 0; t < trace.sizes.queries; ++t) {
      Json row = Json::array();
      for (Index s = 0; s < trace.sizes.keys; ++s) {
        row.push_back(trace.mask.bound.visible(choice.sample, head, t, s));
      }
      rows.push_back(std::move(row));
    }
    list.push_back(std::move(rows));
  }
  return list;
}

Json sizes_json(const Trace& trace) {
  Json json = {{"batch", trace.sizes.batch},
               {"heads", trace.sizes.heads},
               {"kv_heads", trace.kv_heads},
               {"queries", trace.sizes.queries},
               {"keys", trace.sizes.keys},
               {"head_width", trace.head_width},
               {"value_head_width", trace.value_head_width}};
  json["model_width"] = trace.model_width ? Json(*trace.model_width) : Json(nullptr);
  return json;
}

Json shapes_json(const Trace& trace) {
  Json list = Json::array();
  for (const LayoutRow& row : trace.layout) {
    Json json = {
        {"step", row.step},   {"tensors", row.tensors},         {"count", row.count},
        {"shape", row.shape}, {"strides", row.strides},         {"contiguous", row.contiguous},
        {"bytes", row.bytes}, {"memory", name_of(row.storage)}, {"reason", row.reason}};
    if (row.storage == Storage::Absent) {
      for (const char* key : {"strides", "contiguous", "bytes"}) json[key] = nullptr;
    }
    list.push_back(std::move(json));
  }
  return list;
}

Json step_json(const ViewStep& step) {
  return {{"call", step.call},
          {"shape", step.shape},
          {"strides", step.strides},
          {"contiguous", step.contiguous},
          {"memory", name_of(step.storage)}};
}

Json view_json(const ViewDemonstration& view) {
  Json json = {{"context", step_json(view.context)},
               {"transposed", step_json(view.transposed)},
               {"target", view.target}};
  json["view_strides"] = view.strides ? Json(*view.strides) : Json(nullptr);
  json["refusal"] = view.strides ? Json(nullptr) : Json(view.refusal);
  json["contiguous_copy"] = step_json(view.contiguous_copy);
  json["view_of_copy"] = step_json(view.view_of_copy);
  return json;
}

Json mask_json(const MaskTrace& mask) {
  constexpr std::array<const char*, 4> kAxes = {"batch", "heads", "queries", "keys"};
  const MaskShape& sizes = mask.bound.shape();
  Json repeated = Json::array();
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (mask.strides[axis] == 0) repeated.push_back(kAxes[axis]);
  }
  return {{"rule", mask.rule},
          {"shape", mask.shape},
          {"broadcast_shape", {sizes.batch, sizes.heads, sizes.queries, sizes.keys}},
          {"strides", mask.strides},
          {"stride_0_axes", repeated}};
}

Json walk_json(const Walk& walk) {
  Json keys = Json::array();
  for (const WalkKey& entry : walk.keys) {
    keys.push_back({{"key", numbers(entry.key)},
                    {"value", numbers(entry.value)},
                    {"products", numbers(entry.products)},
                    {"dot", json_number(entry.dot)},
                    {"scaled", json_number(entry.scaled)},
                    {"bias", json_number(entry.bias)},
                    {"visible", entry.visible},
                    {"exponential", json_number(entry.exponential)},
                    {"weight", json_number(entry.weight)},
                    {"contribution", numbers(entry.contribution)}});
  }
  Json json = {{"query_token", walk.query_token},
               {"head", walk.head},
               {"query", numbers(walk.query)},
               {"scale", json_number(walk.scale)},
               {"keys", std::move(keys)}};
  json["largest"] = walk.largest ? json_number(*walk.largest) : Json(nullptr);
  json["sum"] = json_number(walk.sum);
  json["context"] = numbers(walk.context);
  return json;
}

Json comparisons_json(const Trace& trace) {
  Json list = Json::array();
  for (const Comparison& entry : trace.comparisons) {
    list.push_back({{"tensor", entry.tensor},
                    {"largest_difference", json_number(entry.largest_difference)},
                    {"tolerance", kRecordedTolerance},
                    {"within_tolerance", entry.within_tolerance},
                    {"compared", entry.compared},
                    {"left_out", entry.left_out}});
  }
  return list;
}

/// The document is built in memory, at some 40 bytes a number.
constexpr double kMostNumbers = 2e7;

void check_length(const Trace& trace, const std::vector<Index>& heads) {
  constexpr double kMatrices = 3;  // visible, scores, weights
  const double numbers = kMatrices * static_cast<double>(heads.size()) *
                         static_cast<double>(trace.sizes.queries) *
                         static_cast<double>(trace.sizes.keys);
  if (numbers <= kMostNumbers) return;
  throw std::invalid_argument(fmt::format(
      "trace: --json: expected at most {:.0f} numbers, got {:.0f} of {} heads with T={}, "
      "S={}; choose fewer with --head",
      kMostNumbers, numbers, heads.size(), trace.sizes.queries, trace.sizes.keys));
}

void add_numbers(const Trace& trace, const TraceChoice& choice, Json& json) {
  const std::vector<Index> heads = chosen_heads(trace, choice);
  check_length(trace, heads);
  const auto sample = static_cast<std::size_t>(choice.sample);
  json["sample"] = choice.sample;
  json["heads"] = heads;
  json["tokens"] = sample < trace.tokens.size() ? Json(trace.tokens[sample]) : Json(nullptr);
  json["visible"] = visible(trace, choice, heads);
  json["scores"] = of_heads(trace.scores, choice, heads);
  json["weights"] = of_heads(trace.weights, choice, heads);
  json["log_sum_exp"] = of_heads(trace.log_sum_exp, choice, heads);
  json["context"] = of_heads(trace.context, choice, heads);
  json["output"] = nullptr;
  if (trace.output && trace.sizes.batch > 0) {
    json["output"] =
        nested(std::as_const(*trace.output).view().slice(0, choice.sample, choice.sample + 1))[0];
  }
  if (choice.query && trace.sizes.batch > 0) {
    json["query_walk"] = walk_json(walk(trace, {choice.sample, heads.front(), *choice.query}));
  }
}

}  // namespace

std::string trace_json(const Trace& trace, const TraceChoice& choice) {
  Json json;
  json["source"] = trace.source;
  json["dtype"] = "float64";
  json["sizes"] = sizes_json(trace);
  json["scale"] = json_number(trace.scale);
  json["self_attention"] = trace.self_attention;
  json["shapes"] = shapes_json(trace);
  json["view_after_transpose"] = view_json(trace.view);
  json["masks"] = Json::array();
  for (const MaskTrace& mask : trace.masks) json["masks"].push_back(mask_json(mask));
  json["mask"] = mask_json(trace.mask);
  add_numbers(trace, choice, json);
  json["comparisons"] = comparisons_json(trace);
  json["warnings"] = Json::array();
  for (const Warning& warning : trace.warnings) {
    json["warnings"].push_back({{"code", warning.code}, {"text", warning.text}});
  }
  // Names and paths come from files and may not be UTF-8.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace qkv::lab
