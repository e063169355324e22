#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "io/safetensors.h"
#include "io/tensor_layout.h"

namespace qkv {
namespace {

std::string json_text(const nlohmann::json& value) {
  try {
    return value.dump();
  } catch (const nlohmann::json::type_error&) {
    throw std::invalid_argument(
        "write_tensors: file: expected names and metadata in UTF-8, got other bytes");
  }
}

}  // namespace

SafetensorsLayout lay_out_safetensors(const TensorFile& file) {
  std::vector<std::pair<const std::string*, const StoredTensor*>> order;
  for (const auto& [name, tensor] : file.tensors) {
    if (name == kSafetensorsMetadata) {
      throw std::invalid_argument(
          "write_tensors: file: expected no tensor named as the metadata are, got "
          "\"__metadata__\"");
    }
    order.emplace_back(&name, &tensor);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return size_of(a.second->dtype()) > size_of(b.second->dtype());
  });

  SafetensorsLayout layout;
  std::string json = "{";
  if (!file.metadata.empty()) {
    json += fmt::format("{}:{}", json_text(kSafetensorsMetadata), json_text(file.metadata));
  }
  std::uint64_t offset = 0;
  for (const auto& [name, tensor] : order) {
    const std::uint64_t end = offset + tensor->bytes().size();
    json += fmt::format("{}{}:{}", json.size() == 1 ? "" : ",", json_text(*name),
                        json_text({{"dtype", safetensors_name(tensor->dtype())},
                                   {"shape", tensor->shape()},
                                   {"data_offsets", {offset, end}}}));
    layout.tensors.push_back(tensor);
    offset = end;
  }
  json += "}";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  if (json.size() > kSafetensorsMaxHeader) {
    throw std::invalid_argument(
        fmt::format("write_tensors: file: expected a header of at most {} bytes, got {}",
                    kSafetensorsMaxHeader, json.size()));
  }
  std::uint64_t length = json.size();
  layout.header.resize(kSafetensorsLengthBytes);
  for (char& byte : layout.header) {
    byte = static_cast<char>(length & 0xff);
    length >>= 8;
  }
  layout.header += json;
  return layout;
}

}  // namespace qkv
