#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <string_view>

#include "module/module_sizes.h"
#include "qkv/multi_head_attention.h"

namespace qkv {
namespace {

template <class T>
using Parameters = MultiHeadAttentionParameters<T>;

[[noreturn]] void fail(std::string_view naming, std::string_view expected, std::string_view got) {
  throw std::invalid_argument(
      fmt::format("save_parameters: naming: expected {} for {}, got {}", expected, naming, got));
}

/// What PyTorch's names and the lesson's have in common: H heads of model_width / H, no norms.
void expect_plain_heads(std::string_view naming, const MultiHeadAttentionOptions& options,
                        const ModuleSizes& sizes) {
  if (sizes.kv_heads != sizes.heads) {
    fail(naming, "as many kv heads as heads",
         fmt::format("{} kv heads and {} heads", sizes.kv_heads, sizes.heads));
  }
  if (sizes.query_rows != sizes.model_width || sizes.value_rows != sizes.model_width) {
    fail(naming, "heads that share model_width among them",
         fmt::format("model_width {}, {} heads of {} (values {})", sizes.model_width, sizes.heads,
                     sizes.head_width, sizes.value_head_width));
  }
  if (options.qk_norm) fail(naming, "no norms", "norms of queries and keys");
}

bool input_biases_agree(const ProjectionBiases& biases) {
  return biases.query == biases.key && biases.key == biases.value;
}

/// Rows below each other.
template <class T>
Tensor<T, 2> stacked(const Tensor<T, 2>& a, const Tensor<T, 2>& b, const Tensor<T, 2>& c) {
  Tensor<T, 2> result({a.shape(0) + b.shape(0) + c.shape(0), a.shape(1)});
  T* next = result.data();
  for (const auto* part : {&a, &b, &c}) {
    next = std::copy(part->elements().begin(), part->elements().end(), next);
  }
  return result;
}

template <class T>
Tensor<T, 1> joined(const Tensor<T, 1>& a, const Tensor<T, 1>& b, const Tensor<T, 1>& c) {
  Tensor<T, 1> result({a.shape(0) + b.shape(0) + c.shape(0)});
  T* next = result.data();
  for (const auto* part : {&a, &b, &c}) {
    next = std::copy(part->elements().begin(), part->elements().end(), next);
  }
  return result;
}

template <class T, int Rank>
void add(TensorFile& file, const std::string& name, const Tensor<T, Rank>& tensor) {
  file.tensors.emplace(name, store(tensor.view()));
}

template <class T, int Rank>
void add(TensorFile& file, const std::string& name, const std::optional<Tensor<T, Rank>>& tensor) {
  if (tensor) add(file, name, *tensor);
}

template <class T>
void save_pytorch(const MultiHeadAttentionOptions& options, const ModuleSizes& sizes,
                  const Parameters<T>& p, TensorFile& file) {
  constexpr std::string_view kNaming = "PyTorch's names";
  expect_plain_heads(kNaming, options, sizes);
  const ProjectionBiases& biases = options.biases;
  if (!input_biases_agree(biases) || biases.query != biases.output) {
    fail(kNaming, "all biases or none", "biases of some projections");
  }
  if (sizes.key_input_width == sizes.model_width && sizes.value_input_width == sizes.model_width) {
    add(file, "in_proj_weight", stacked(p.query_weight, p.key_weight, p.value_weight));
  } else {
    add(file, "q_proj_weight", p.query_weight);
    add(file, "k_proj_weight", p.key_weight);
    add(file, "v_proj_weight", p.value_weight);
  }
  if (biases.query) add(file, "in_proj_bias", joined(*p.query_bias, *p.key_bias, *p.value_bias));
  add(file, "out_proj.weight", p.output_weight);
  add(file, "out_proj.bias", p.output_bias);
}

template <class T>
void save_fused(const MultiHeadAttentionOptions& options, const ModuleSizes& sizes,
                const Parameters<T>& p, TensorFile& file) {
  constexpr std::string_view kNaming = "fused names";
  expect_plain_heads(kNaming, options, sizes);
  if (sizes.key_input_width != sizes.model_width || sizes.value_input_width != sizes.model_width) {
    fail(kNaming, "inputs of the same width",
         fmt::format("model_width {}, key_width {}, value_width {}", sizes.model_width,
                     sizes.key_input_width, sizes.value_input_width));
  }
  if (!input_biases_agree(options.biases)) {
    fail(kNaming, "biases of query, key and value or of none of them",
         "biases of some projections");
  }
  add(file, "qkv.weight", stacked(p.query_weight, p.key_weight, p.value_weight));
  if (options.biases.query) {
    add(file, "qkv.bias", joined(*p.query_bias, *p.key_bias, *p.value_bias));
  }
  add(file, "out.weight", p.output_weight);
  add(file, "out.bias", p.output_bias);
}

template <class T>
void save_separate(const Parameters<T>& p, TensorFile& file) {
  add(file, "q_proj.weight", p.query_weight);
  add(file, "k_proj.weight", p.key_weight);
  add(file, "v_proj.weight", p.value_weight);
  add(file, "o_proj.weight", p.output_weight);
  add(file, "q_proj.bias", p.query_bias);
  add(file, "k_proj.bias", p.key_bias);
  add(file, "v_proj.bias", p.value_bias);
  add(file, "o_proj.bias", p.output_bias);
  add(file, "q_norm.weight", p.query_norm);
  add(file, "k_norm.weight", p.key_norm);
}

}  // namespace

template <class T>
TensorFile save_parameters(const MultiHeadAttention<T>& module, ParameterNaming naming) {
  const MultiHeadAttentionOptions& options = module.options();
  const ModuleSizes sizes = checked_sizes(options);
  check_parameters("save_parameters", options, module.parameters());
  TensorFile file;
  switch (naming) {
    case ParameterNaming::PyTorch:
      save_pytorch(options, sizes, module.parameters(), file);
      break;
    case ParameterNaming::Fused:
      save_fused(options, sizes, module.parameters(), file);
      break;
    case ParameterNaming::Separate:
      save_separate(module.parameters(), file);
      break;
  }
  file.metadata.emplace("num_heads", fmt::format("{}", sizes.heads));
  return file;
}

template TensorFile save_parameters(const MultiHeadAttention<double>&, ParameterNaming);
template TensorFile save_parameters(const MultiHeadAttention<float>&, ParameterNaming);

}  // namespace qkv
