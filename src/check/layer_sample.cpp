#include "check/layer_sample.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "check/layer_sample_metadata.h"

namespace qkv {
namespace {

using layer_sample::fail;
using layer_sample::read_json;
using layer_sample::read_number;

const std::set<std::string, std::less<>> kTensorNames = {
    "x", "q_proj.weight", "q_proj.bias",   "k_proj.weight", "k_proj.bias",
    "q", "v_proj.weight", "v_proj.bias",   "o_proj.weight", "o_proj.bias",
    "k", "q_before_rope", "k_before_rope", "weights",       "context",
    "v", "out",           "input_ids",     "position_ids",  "attention_mask",
};

/// Reads tensors of one file and checks their shapes.
template <class T>
class Reader {
 public:
  explicit Reader(const TensorFile& file) : file_(file) {}

  bool has(const std::string& name) const { return file_.contains(name); }

  /// Extents of a tensor of this rank.
  template <int Rank>
  Extents<Rank> shape(const std::string& name) const {
    const std::vector<Index>& actual = file_.at(name).shape();
    if (actual.size() != Rank) {
      fail(name, fmt::format("{} axes", Rank), to_string(actual));
    }
    Extents<Rank> result{};
    std::copy(actual.begin(), actual.end(), result.begin());
    return result;
  }

  template <int Rank, class Element = T>
  Tensor<Element, Rank> required(const std::string& name, const Extents<Rank>& expected) const {
    if (const auto actual = shape<Rank>(name); actual != expected) {
      fail(name, to_string(expected), to_string(actual));
    }
    return file_.at(name).template to<Element, Rank>(name);
  }

  template <int Rank, class Element = T>
  std::optional<Tensor<Element, Rank>> optional(const std::string& name,
                                                const Extents<Rank>& expected) const {
    if (!has(name)) return std::nullopt;
    return required<Rank, Element>(name, expected);
  }

  /// Whether the tensors are there: all of them, or none.
  template <std::size_t Count>
  bool has_all(const std::array<std::string, Count>& names) const {
    const auto present = std::count_if(names.begin(), names.end(),
                                       [this](const std::string& name) { return has(name); });
    if (present == 0) return false;
    for (const std::string& name : names) {
      if (!has(name)) fail(name, fmt::format("all of {}", fmt::join(names, ", ")), "none");
    }
    return true;
  }

 private:
  const TensorFile& file_;
};

void check_names(const TensorFile& file) {
  for (const auto& [name, tensor] : file.tensors) {
    if (!kTensorNames.contains(name)) {
      fail("tensor names", fmt::format("any of {}", fmt::join(kTensorNames, ", ")),
           fmt::format("\"{}\"", name));
    }
  }
}

/// A width that H or Hkv heads share.
Index width_of_each(const std::string& tensor, Index width, Index heads) {
  if (heads <= 0 || width % heads != 0) {
    fail(tensor, fmt::format("rows for each of {} heads", heads), std::to_string(width));
  }
  return width / heads;
}

template <class T>
void read_sizes_of_heads(const TensorFile& file, const Reader<T>& reader, LayerSample<T>& sample) {
  const auto query = reader.template shape<4>("q");
  const auto key = reader.template shape<4>("k");
  const auto value = reader.template shape<4>("v");
  sample.batch = query[0];
  sample.heads = query[1];
  sample.queries = query[2];
  sample.head_width = query[3];
  sample.kv_heads = key[1];
  sample.keys = key[2];
  sample.value_head_width = value[3];
  const auto expect_heads = [&](const std::string& metadata, const std::string& tensor,
                                Index heads) {
    const auto stated = read_number<Index>(file, metadata);
    if (stated && *stated != heads) {
      fail(tensor, fmt::format("the {} heads of metadata \"{}\"", *stated, metadata),
           std::to_string(heads));
    }
  };
  expect_heads("num_heads", "q", sample.heads);
  expect_heads("num_kv_heads", "k", sample.kv_heads);
}

template <class T>
void read_sizes_of_projections(const TensorFile& file, const Reader<T>& reader,
                               LayerSample<T>& sample) {
  const auto input = reader.template shape<3>("x");
  const auto heads = read_number<Index>(file, "num_heads");
  if (!heads) fail("metadata \"num_heads\"", "the number of heads", "none");
  sample.batch = input[0];
  sample.queries = sample.keys = input[1];
  sample.heads = *heads;
  sample.kv_heads = read_number<Index>(file, "num_kv_heads").value_or(*heads);
  sample.head_width =
      width_of_each("q_proj.weight", reader.template shape<2>("q_proj.weight")[0], sample.heads);
  sample.value_head_width =
      width_of_each("v_proj.weight", reader.template shape<2>("v_proj.weight")[0], sample.kv_heads);
}

template <class T>
MultiHeadAttentionParameters<T> read_parameters(const Reader<T>& reader,
                                                const LayerSample<T>& sample, Index model_width) {
  const Index query_rows = sample.heads * sample.head_width;
  const Index key_rows = sample.kv_heads * sample.head_width;
  const Index value_rows = sample.kv_heads * sample.value_head_width;
  const Index context_width = sample.heads * sample.value_head_width;
  MultiHeadAttentionParameters<T> parameters;
  parameters.query_weight = reader.template required<2>("q_proj.weight", {query_rows, model_width});
  parameters.key_weight = reader.template required<2>("k_proj.weight", {key_rows, model_width});
  parameters.value_weight = reader.template required<2>("v_proj.weight", {value_rows, model_width});
  parameters.output_weight =
      reader.template required<2>("o_proj.weight", {model_width, context_width});
  parameters.query_bias = reader.template optional<1>("q_proj.bias", {query_rows});
  parameters.key_bias = reader.template optional<1>("k_proj.bias", {key_rows});
  parameters.value_bias = reader.template optional<1>("v_proj.bias", {value_rows});
  parameters.output_bias = reader.template optional<1>("o_proj.bias", {model_width});
  return parameters;
}

template <class T>
void read_texts(const TensorFile& file, LayerSample<T>& sample) {
  if (const auto entry = file.metadata.find("source"); entry != file.metadata.end()) {
    sample.source = entry->second;
  }
  sample.tokens =
      read_json<std::vector<std::vector<std::string>>>(file, "tokens", "lists of strings in JSON");
  sample.sentences =
      read_json<std::vector<std::string>>(file, "sentences", "a list of strings in JSON");
  const auto batch = static_cast<std::size_t>(sample.batch);
  if (!sample.sentences.empty() && sample.sentences.size() != batch) {
    fail("metadata \"sentences\"", fmt::format("{} sentences", batch),
         std::to_string(sample.sentences.size()));
  }
  if (sample.tokens.empty()) return;
  if (sample.tokens.size() != batch) {
    fail("metadata \"tokens\"", fmt::format("{} lists", batch),
         std::to_string(sample.tokens.size()));
  }
  for (const auto& tokens : sample.tokens) {
    if (tokens.size() != static_cast<std::size_t>(sample.queries)) {
      fail("metadata \"tokens\"", fmt::format("{} tokens in each list", sample.queries),
           std::to_string(tokens.size()));
    }
  }
}

}  // namespace

template <class T>
MultiHeadAttentionOptions LayerSample<T>::module_options() const {
  MultiHeadAttentionOptions options;
  options.model_width = parameters->query_weight.shape(1);
  options.heads = heads;
  options.kv_heads = kv_heads;
  options.head_width = head_width;
  options.value_head_width = value_head_width;
  options.biases = {.query = parameters->query_bias.has_value(),
                    .key = parameters->key_bias.has_value(),
                    .value = parameters->value_bias.has_value(),
                    .output = parameters->output_bias.has_value()};
  options.rotary = rotary;
  return options;
}

template <class T>
LayerSample<T> read_layer_sample(const TensorFile& file) {
  check_names(file);
  const Reader<T> reader(file);
  LayerSample<T> sample;
  const bool has_projections = reader.has_all(std::array<std::string, 5>{
      "x", "q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"});
  const bool has_heads = reader.has_all(std::array<std::string, 3>{"q", "k", "v"});
  if (has_heads) {
    read_sizes_of_heads(file, reader, sample);
  } else if (has_projections) {
    read_sizes_of_projections(file, reader, sample);
  } else {
    fail("tensor names", "q, k and v, or x with the weights of its projections", "neither");
  }
  if (sample.kv_heads <= 0 || sample.heads % sample.kv_heads != 0) {
    fail("k", fmt::format("heads that divide the {} heads of q", sample.heads),
         std::to_string(sample.kv_heads));
  }

  const auto [batch, queries, keys] = std::array{sample.batch, sample.queries, sample.keys};
  const Extents<4> query_shape = {batch, sample.heads, queries, sample.head_width};
  const Extents<4> key_shape = {batch, sample.kv_heads, keys, sample.head_width};
  sample.query = reader.template optional<4>("q", query_shape);
  sample.key = reader.template optional<4>("k", key_shape);
  sample.value =
      reader.template optional<4>("v", {batch, sample.kv_heads, keys, sample.value_head_width});
  sample.rotary = layer_sample::read_rotary(file);
  sample.query_before_rotary = reader.template optional<4>("q_before_rope", query_shape);
  sample.key_before_rotary = reader.template optional<4>("k_before_rope", key_shape);
  sample.positions = reader.template optional<2, Index>("position_ids", {batch, queries});
  if (has_projections) {
    const Index model_width = reader.template shape<3>("x")[2];
    sample.input = reader.template required<3>("x", {batch, queries, model_width});
    if (keys != queries) {
      fail("k", fmt::format("the {} tokens of x", queries), std::to_string(keys));
    }
    sample.parameters = read_parameters(reader, sample, model_width);
    sample.output = reader.template optional<3>("out", {batch, queries, model_width});
  } else if (reader.has("out")) {
    fail("out", "x and the projections with it", "out alone");
  }
  sample.weights = reader.template optional<4>("weights", {batch, sample.heads, queries, keys});
  sample.context = reader.template optional<3>(
      "context", {batch, queries, sample.heads * sample.value_head_width});
  sample.keep = reader.template optional<2, bool>("attention_mask", {batch, keys});

  sample.mask = layer_sample::read_causal(file);
  if (sample.keep) {
    sample.mask =
        sample.mask & Mask::key_padding(std::as_const(*sample.keep).view(), Polarity::Keep);
  }
  read_texts(file, sample);
  return sample;
}

template struct LayerSample<float>;
template struct LayerSample<double>;
template LayerSample<float> read_layer_sample(const TensorFile& file);
template LayerSample<double> read_layer_sample(const TensorFile& file);

}  // namespace qkv
