#include "model/encoder_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <string_view>

#include "model/encoder_parameters.h"
#include "model/json_object.h"
#include "qkv/error.h"
#include "qkv/io.h"

namespace qkv {
namespace {

constexpr std::string_view kPrefix = "bert.";
/// What files hold besides the encoder.
constexpr std::array<std::string_view, 2> kLeftOut{"pooler.dense.", "embeddings.position_ids"};
/// The same, beside the prefix.
constexpr std::array<std::string_view, 3> kTaskHeads{"cls.", "classifier.", "qa_outputs."};

std::string file_of(const std::string& folder, const char* name) {
  return (std::filesystem::path(folder) / name).string();
}

bool starts_with_one_of(std::string_view name, std::span<const std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

Index size(const JsonObject& config, std::string_view field) {
  const std::optional<Index> value = config.whole_number(field);
  if (!value) config.refuse(field, "a whole number", "none");
  if (*value < 1) config.refuse(field, "1 or more", fmt::format("{}", *value));
  return *value;
}

void expect_text(const JsonObject& config, std::string_view field, const std::string& text,
                 std::string_view expected) {
  if (text != expected) {
    config.refuse(field, fmt::format("\"{}\"", expected), fmt::format("\"{}\"", text));
  }
}

/// The tensors of one file, by their names without the prefix.
template <class T>
class TensorReader {
 public:
  explicit TensorReader(const std::string& path) : path_(path), file_(read_tensors(path)) {
    const bool prefixed = std::any_of(file_.tensors.begin(), file_.tensors.end(),
                                      [](const auto& t) { return t.first.starts_with(kPrefix); });
    if (prefixed) prefix_ = kPrefix;
  }

  std::size_t count() const noexcept { return file_.tensors.size(); }

  template <std::size_t Rank>
  Tensor<T, static_cast<int>(Rank)> read(const std::string& name,
                                         const std::array<Index, Rank>& shape) {
    const std::string full = stored_name(name);
    const auto found = file_.tensors.find(full);
    if (found == file_.tensors.end()) {
      throw FileError(path_, fmt::format("{}: expected a tensor of shape {}, got none", full,
                                         to_string(shape)));
    }
    const StoredTensor& tensor = found->second;
    if (!std::equal(shape.begin(), shape.end(), tensor.shape().begin(), tensor.shape().end())) {
      throw FileError(path_, fmt::format("{}: expected shape {}, got {}", full, to_string(shape),
                                         to_string(tensor.shape())));
    }
    if (!is_floating(tensor.dtype())) {
      throw FileError(path_, fmt::format("{}: expected a floating-point tensor, got {}", full,
                                         name_of(tensor.dtype())));
    }
    read_.insert(full);
    return finite(full, converted<static_cast<int>(Rank)>(full, tensor));
  }

  void expect_nothing_else() const {
    for (const auto& [name, tensor] : file_.tensors) {
      if (read_.contains(name)) continue;
      const bool inside = name.starts_with(prefix_);
      if (inside && starts_with_one_of(name.substr(prefix_.size()), kLeftOut)) continue;
      if (!inside && starts_with_one_of(name, kTaskHeads)) continue;
      throw FileError(path_, fmt::format("{}: expected no tensor of this name, got one of shape {}",
                                         name, to_string(tensor.shape())));
    }
  }

 private:
  template <int Rank>
  Tensor<T, Rank> converted(const std::string& name, const StoredTensor& tensor) const {
    try {
      return tensor.to<T, Rank>(name);
    } catch (const std::invalid_argument& error) {
      throw FileError(path_, error.what());
    }
  }

  template <int Rank>
  Tensor<T, Rank> finite(const std::string& name, Tensor<T, Rank> tensor) const {
    for (const T value : tensor.elements()) {
      if (std::isfinite(value)) continue;
      throw FileError(path_, fmt::format("{}: expected finite numbers, got {}", name, value));
    }
    return tensor;
  }

  /// Norms were once called gamma and beta.
  std::string stored_name(const std::string& name) const {
    std::string full = prefix_ + name;
    if (file_.contains(full) || name.find("LayerNorm") == std::string::npos) return full;
    const auto dot = full.rfind('.');
    const std::string former =
        full.substr(0, dot) + (name.ends_with("weight") ? ".gamma" : ".beta");
    return file_.contains(former) ? former : full;
  }

  std::string path_;
  TensorFile file_;
  std::string prefix_;
  std::set<std::string> read_;
};

}  // namespace

EncoderOptions read_encoder_options(const std::string& folder) {
  const JsonObject config = JsonObject::read(file_of(folder, "config.json"));
  expect_text(config, "model_type", config.text("model_type").value_or(""), "bert");
  expect_text(config, "hidden_act", config.text("hidden_act").value_or("gelu"), "gelu");
  expect_text(config, "position_embedding_type",
              config.text("position_embedding_type").value_or("absolute"), "absolute");
  for (const char* field : {"is_decoder", "add_cross_attention"}) {
    if (config.boolean(field).value_or(false)) config.refuse(field, "false", "true");
  }
  EncoderOptions options;
  options.vocabulary = size(config, "vocab_size");
  options.context = size(config, "max_position_embeddings");
  options.token_types = size(config, "type_vocab_size");
  options.model_width = size(config, "hidden_size");
  options.layers = size(config, "num_hidden_layers");
  options.heads = size(config, "num_attention_heads");
  options.mlp_width = size(config, "intermediate_size");
  options.norm_epsilon = config.number("layer_norm_eps").value_or(options.norm_epsilon);
  if (options.model_width % options.heads != 0) {
    config.refuse("num_attention_heads",
                  fmt::format("a divisor of hidden_size {}", options.model_width),
                  fmt::format("{}", options.heads));
  }
  if (!(options.norm_epsilon > 0)) {
    config.refuse("layer_norm_eps", "a positive number", fmt::format("{}", options.norm_epsilon));
  }
  return options;
}

template <class T>
Encoder<T> load_encoder(const std::string& folder) {
  const EncoderOptions options = read_encoder_options(folder);
  const std::string path = file_of(folder, "model.safetensors");
  TensorReader<T> reader(path);
  if (static_cast<std::size_t>(options.layers) > reader.count()) {
    throw FileError(path, fmt::format("expected tensors of {} layers, got {} tensors",
                                      options.layers, reader.count()));
  }
  EncoderParameters<T> parameters;
  parameters.blocks.resize(static_cast<std::size_t>(options.layers));
  visit_parameters(options, parameters,
                   [&](const std::string& name, auto& tensor, const auto& shape) {
                     tensor = reader.read(name, shape);
                   });
  reader.expect_nothing_else();
  return {options, std::move(parameters)};
}

template Encoder<double> load_encoder(const std::string&);
template Encoder<float> load_encoder(const std::string&);

}  // namespace qkv
