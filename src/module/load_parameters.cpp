#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/multi_head_attention.h"

namespace qkv {
namespace {

constexpr std::array<std::string_view, 7> kPyTorchNames{
    "in_proj_weight", "q_proj_weight",   "k_proj_weight", "v_proj_weight",
    "in_proj_bias",   "out_proj.weight", "out_proj.bias"};
constexpr std::array<std::string_view, 4> kFusedNames{"qkv.weight", "out.weight", "qkv.bias",
                                                      "out.bias"};
constexpr std::array<std::string_view, 10> kSeparateNames{
    "q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight", "q_proj.bias",
    "k_proj.bias",   "v_proj.bias",   "o_proj.bias",   "q_norm.weight", "k_norm.weight"};

constexpr Index kLargestExtent = std::numeric_limits<std::int32_t>::max();

std::span<const std::string_view> names_of(ParameterNaming naming) {
  switch (naming) {
    case ParameterNaming::PyTorch:
      return kPyTorchNames;
    case ParameterNaming::Fused:
      return kFusedNames;
    case ParameterNaming::Separate:
      return kSeparateNames;
  }
  return {};
}

[[noreturn]] void fail(std::string_view argument, std::string_view expected, std::string_view got) {
  throw std::invalid_argument(
      fmt::format("load_parameters: {}: expected {}, got {}", argument, expected, got));
}

/// Rows [begin, begin + count) of a matrix, copied.
template <class T>
Tensor<T, 2> rows_of(const Tensor<T, 2>& matrix, Index begin, Index count) {
  return contiguous_copy(matrix.view().slice(0, begin, begin + count));
}

template <class T>
Tensor<T, 1> part_of(const Tensor<T, 1>& vector, Index begin, Index count) {
  return contiguous_copy(vector.view().slice(0, begin, begin + count));
}

/// The tensors under a prefix, by the name that follows it.
template <class T>
class ParameterReader {
 public:
  ParameterReader(const TensorFile& file, std::string prefix)
      : file_(file), prefix_(std::move(prefix)) {
    for (const auto& [name, tensor] : file.tensors) {
      if (name.starts_with(prefix_)) names_.push_back(name.substr(prefix_.size()));
    }
  }

  const std::vector<std::string>& names() const noexcept { return names_; }
  const std::string& prefix() const noexcept { return prefix_; }
  std::string full(std::string_view name) const { return prefix_ + std::string(name); }
  bool has(std::string_view name) const { return file_.contains(full(name)); }

  /// The extents of a tensor that must be there, of floating-point type and of this rank.
  template <int Rank>
  Extents<Rank> shape(std::string_view name) const {
    if (!has(name)) fail(full(name), "a tensor of this name", "none");
    const StoredTensor& tensor = file_.at(full(name));
    if (!is_floating(tensor.dtype())) {
      fail(full(name), "a floating-point tensor", name_of(tensor.dtype()));
    }
    if (tensor.shape().size() != static_cast<std::size_t>(Rank)) {
      fail(full(name), Rank == 2 ? "a matrix" : "a vector",
           fmt::format("shape {}", to_string(tensor.shape())));
    }
    Extents<Rank> result{};
    std::copy(tensor.shape().begin(), tensor.shape().end(), result.begin());
    // An empty tensor may claim any extent, and sums of extents must not overflow.
    if (std::any_of(result.begin(), result.end(), [](Index e) { return e > kLargestExtent; })) {
      fail(full(name), fmt::format("extents of at most {}", kLargestExtent),
           fmt::format("shape {}", to_string(result)));
    }
    return result;
  }

  template <int Rank>
  Tensor<T, Rank> read(std::string_view name, const Extents<Rank>& expected) const {
    if (const Extents<Rank> actual = shape<Rank>(name); actual != expected) {
      fail(full(name), fmt::format("shape {}", to_string(expected)),
           fmt::format("shape {}", to_string(actual)));
    }
    return file_.at(full(name)).template to<T, Rank>(full(name));
  }

  std::optional<Tensor<T, 1>> read_optional(std::string_view name, Index width) const {
    if (!has(name)) return std::nullopt;
    return read<1>(name, Extents<1>{width});
  }

 private:
  const TensorFile& file_;
  std::string prefix_;
  std::vector<std::string> names_;
};

template <class T>
ParameterNaming recognise(const ParameterReader<T>& reader) {
  for (const std::string_view name : {"bias_k", "bias_v"}) {
    if (reader.has(name)) {
      fail(reader.full(name), "no learned extra key or value (add_bias_kv is not supported)",
           "one");
    }
  }
  const auto contains = [](ParameterNaming naming, std::string_view name) {
    const auto known = names_of(naming);
    return std::find(known.begin(), known.end(), name) != known.end();
  };
  for (const ParameterNaming naming :
       {ParameterNaming::PyTorch, ParameterNaming::Fused, ParameterNaming::Separate}) {
    const auto known = [&](const std::string& name) { return contains(naming, name); };
    const auto& names = reader.names();
    if (std::none_of(names.begin(), names.end(), known)) continue;
    const auto unknown = std::find_if_not(names.begin(), names.end(), known);
    if (unknown == names.end()) return naming;
    fail("tensor name",
         fmt::format("one of {}{}", fmt::join(names_of(naming), ", "),
                     reader.prefix().empty() ? "" : " after the prefix " + reader.prefix()),
         reader.full(*unknown));
  }
  fail("file",
       fmt::format("in_proj_weight or q_proj_weight (PyTorch), qkv.weight (the lesson) or "
                   "q_proj.weight (separate projections) after the prefix \"{}\"",
                   reader.prefix()),
       reader.names().empty() ? "no tensors" : fmt::format("{}", fmt::join(reader.names(), ", ")));
}

Index heads_of(const TensorFile& file, const LoadOptions& options) {
  Index heads = 0;
  if (options.heads) {
    heads = *options.heads;
  } else {
    const auto entry = file.metadata.find("num_heads");
    if (entry == file.metadata.end()) {
      fail("heads", "a number of heads in the options or in the metadata \"num_heads\"", "none");
    }
    const std::string& text = entry->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), heads);
    if (error != std::errc{} || end != text.data() + text.size()) {
      fail("metadata \"num_heads\"", "a number", fmt::format("\"{}\"", text));
    }
  }
  if (heads <= 0) fail("heads", "a positive number", fmt::format("{}", heads));
  return heads;
}

/// rows / parts, where it divides.
Index divided(std::string_view argument, Index rows, std::string_view of, Index parts) {
  if (rows <= 0 || rows % parts != 0) {
    fail(argument, fmt::format("a divisor of the {} rows of {}", rows, of),
         fmt::format("{}", parts));
  }
  return rows / parts;
}

void expect_kv_heads(const LoadOptions& options, Index actual) {
  if (options.kv_heads && *options.kv_heads != actual) {
    fail("kv_heads", fmt::format("{}, as the shapes in the file say", actual),
         fmt::format("{}", *options.kv_heads));
  }
}

MultiHeadAttentionOptions common_options(const LoadOptions& load, Index model_width, Index heads) {
  MultiHeadAttentionOptions options;
  options.model_width = model_width;
  options.heads = heads;
  options.rotary = load.rotary;
  options.scale = load.scale;
  options.softcap = load.softcap;
  return options;
}

template <class T>
struct Loaded {
  MultiHeadAttentionOptions options;
  MultiHeadAttentionParameters<T> parameters;
};

/// Query, key and value of one matrix [3E, width] and one bias [3E], a third each.
template <class T>
void read_thirds(const ParameterReader<T>& reader, std::string_view weight, Index width,
                 MultiHeadAttentionParameters<T>& p) {
  const Tensor<T, 2> all = reader.template read<2>(weight, Extents<2>{3 * width, width});
  p.query_weight = rows_of(all, 0, width);
  p.key_weight = rows_of(all, width, width);
  p.value_weight = rows_of(all, 2 * width, width);
}

template <class T>
void read_bias_thirds(const ParameterReader<T>& reader, std::string_view bias, Index width,
                      MultiHeadAttentionParameters<T>& p) {
  const Tensor<T, 1> all = reader.template read<1>(bias, Extents<1>{3 * width});
  p.query_bias = part_of(all, 0, width);
  p.key_bias = part_of(all, width, width);
  p.value_bias = part_of(all, 2 * width, width);
}

template <class T>
Loaded<T> load_pytorch(const ParameterReader<T>& reader, const LoadOptions& load, Index heads) {
  const Index width = reader.template shape<2>("out_proj.weight")[0];
  divided("heads", width, reader.full("out_proj.weight"), heads);
  expect_kv_heads(load, heads);
  Loaded<T> result{common_options(load, width, heads), {}};
  MultiHeadAttentionParameters<T>& p = result.parameters;
  if (reader.has("in_proj_weight")) {
    for (const std::string_view name : {"q_proj_weight", "k_proj_weight", "v_proj_weight"}) {
      if (reader.has(name)) {
        fail(reader.full(name), "none beside in_proj_weight", "a tensor of this name");
      }
    }
    read_thirds(reader, "in_proj_weight", width, p);
  } else {
    const Index key_width = reader.template shape<2>("k_proj_weight")[1];
    const Index value_width = reader.template shape<2>("v_proj_weight")[1];
    result.options.key_width = key_width;
    result.options.value_width = value_width;
    p.query_weight = reader.template read<2>("q_proj_weight", Extents<2>{width, width});
    p.key_weight = reader.template read<2>("k_proj_weight", Extents<2>{width, key_width});
    p.value_weight = reader.template read<2>("v_proj_weight", Extents<2>{width, value_width});
  }
  p.output_weight = reader.template read<2>("out_proj.weight", Extents<2>{width, width});
  if (reader.has("in_proj_bias") || reader.has("out_proj.bias")) {
    result.options.biases = ProjectionBiases::all();
    read_bias_thirds(reader, "in_proj_bias", width, p);
    p.output_bias = reader.template read<1>("out_proj.bias", Extents<1>{width});
  }
  return result;
}

template <class T>
Loaded<T> load_fused(const ParameterReader<T>& reader, const LoadOptions& load, Index heads) {
  const Index width = reader.template shape<2>("qkv.weight")[1];
  expect_kv_heads(load, heads);
  Loaded<T> result{common_options(load, width, heads), {}};
  MultiHeadAttentionParameters<T>& p = result.parameters;
  read_thirds(reader, "qkv.weight", width, p);
  divided("heads", width, reader.full("out.weight"), heads);
  p.output_weight = reader.template read<2>("out.weight", Extents<2>{width, width});
  if (reader.has("qkv.bias")) {
    result.options.biases = {.query = true, .key = true, .value = true, .output = false};
    read_bias_thirds(reader, "qkv.bias", width, p);
  }
  p.output_bias = reader.read_optional("out.bias", width);
  result.options.biases.output = p.output_bias.has_value();
  return result;
}

template <class T>
Loaded<T> load_separate(const ParameterReader<T>& reader, const LoadOptions& load, Index heads) {
  const auto [query_rows, width] = reader.template shape<2>("q_proj.weight");
  const auto [key_rows, key_width] = reader.template shape<2>("k_proj.weight");
  const auto [value_rows, value_width] = reader.template shape<2>("v_proj.weight");
  const Index head_width = divided("heads", query_rows, reader.full("q_proj.weight"), heads);
  if (key_rows <= 0 || key_rows % head_width != 0) {
    fail(reader.full("k_proj.weight"), fmt::format("rows in heads of {}", head_width),
         fmt::format("{} rows", key_rows));
  }
  const Index kv_heads = key_rows / head_width;
  expect_kv_heads(load, kv_heads);
  const Index value_head_width =
      divided("kv_heads", value_rows, reader.full("v_proj.weight"), kv_heads);

  Loaded<T> result{common_options(load, width, heads), {}};
  MultiHeadAttentionOptions& options = result.options;
  options.kv_heads = kv_heads;
  options.head_width = head_width;
  options.value_head_width = value_head_width;
  options.key_width = key_width;
  options.value_width = value_width;

  MultiHeadAttentionParameters<T>& p = result.parameters;
  p.query_weight = reader.template read<2>("q_proj.weight", Extents<2>{query_rows, width});
  p.key_weight = reader.template read<2>("k_proj.weight", Extents<2>{key_rows, key_width});
  p.value_weight = reader.template read<2>("v_proj.weight", Extents<2>{value_rows, value_width});
  p.output_weight =
      reader.template read<2>("o_proj.weight", Extents<2>{width, heads * value_head_width});
  p.query_bias = reader.read_optional("q_proj.bias", query_rows);
  p.key_bias = reader.read_optional("k_proj.bias", key_rows);
  p.value_bias = reader.read_optional("v_proj.bias", value_rows);
  p.output_bias = reader.read_optional("o_proj.bias", width);
  options.biases = {.query = p.query_bias.has_value(),
                    .key = p.key_bias.has_value(),
                    .value = p.value_bias.has_value(),
                    .output = p.output_bias.has_value()};
  if (reader.has("q_norm.weight") || reader.has("k_norm.weight")) {
    options.qk_norm = load.qk_norm;
    p.query_norm = reader.template read<1>("q_norm.weight", Extents<1>{head_width});
    p.key_norm = reader.template read<1>("k_norm.weight", Extents<1>{head_width});
  }
  return result;
}

template <class T>
Loaded<T> load_named(ParameterNaming naming, const ParameterReader<T>& reader,
                     const LoadOptions& load, Index heads) {
  switch (naming) {
    case ParameterNaming::PyTorch:
      return load_pytorch(reader, load, heads);
    case ParameterNaming::Fused:
      return load_fused(reader, load, heads);
    case ParameterNaming::Separate:
      break;
  }
  return load_separate(reader, load, heads);
}

}  // namespace

template <class T>
MultiHeadAttention<T> load_parameters(const TensorFile& file, const LoadOptions& options) {
  const ParameterReader<T> reader(file, options.prefix);
  const ParameterNaming naming = recognise(reader);
  Loaded<T> loaded = load_named(naming, reader, options, heads_of(file, options));
  return {loaded.options, std::move(loaded.parameters)};
}

template MultiHeadAttention<double> load_parameters(const TensorFile&, const LoadOptions&);
template MultiHeadAttention<float> load_parameters(const TensorFile&, const LoadOptions&);

}  // namespace qkv
