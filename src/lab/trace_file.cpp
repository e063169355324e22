#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <stdexcept>
#include <utility>

#include "check/layer_sample.h"
#include "lab/trace_source.h"

namespace qkv::lab {
namespace {

/// Tensors of a layer sample that are not parameters.
const std::set<std::string, std::less<>> kActivations = {
    "x",       "q",       "k",   "v",         "q_before_rope", "k_before_rope",
    "weights", "context", "out", "input_ids", "position_ids",  "attention_mask",
};

/// Takes a tensor out of the file, for nothing else there would know its name.
StoredTensor take(TensorFile& file, const std::string& name) {
  StoredTensor tensor = file.at(name);
  file.tensors.erase(name);
  return tensor;
}

/// A tensor of rank 1 to 4 as [B,H,T,S]: missing leading axes get extent 1, as when it is
/// broadcast.
template <class T>
Tensor<T, 4> to_rank_four(const StoredTensor& tensor, const std::string& name) {
  std::vector<Index> shape = tensor.shape();
  if (shape.empty() || shape.size() > 4) {
    throw std::invalid_argument(
        fmt::format("trace: {}: expected 1 to 4 axes, got {}", name, to_string(shape)));
  }
  shape.insert(shape.begin(), 4 - shape.size(), 1);
  const StoredTensor reshaped(tensor.dtype(), shape, tensor.bytes(),
                              std::make_shared<StoredTensor>(tensor));
  return reshaped.to<T, 4>(name);
}

Mask take_mask(TensorFile& file, const FileOptions& options) {
  if (!options.mask_tensor) {
    if (options.true_means) {
      throw std::invalid_argument("trace: --true-means: expected --mask-tensor with it, got none");
    }
    return {};
  }
  if (!options.true_means) {
    throw std::invalid_argument(
        fmt::format("trace: --true-means: expected keep or drop (libraries disagree on what true "
                    "means, so it is never assumed for \"{}\"), got nothing",
                    *options.mask_tensor));
  }
  const StoredTensor tensor = take(file, *options.mask_tensor);
  return Mask::boolean(to_rank_four<bool>(tensor, *options.mask_tensor).view(),
                       *options.true_means);
}

/// Parameters under other names than q_proj.weight … are brought under those.
void rename_parameters(TensorFile& file, const FileOptions& options) {
  if (!file.contains("x") || file.contains("q_proj.weight")) return;
  TensorFile parameters;
  for (const auto& [name, tensor] : file.tensors) {
    if (!kActivations.contains(name)) parameters.tensors.emplace(name, tensor);
  }
  if (parameters.tensors.empty()) return;
  parameters.metadata = file.metadata;
  LoadOptions load;
  load.heads = options.heads;
  load.kv_heads = options.kv_heads;
  const auto module = load_parameters<double>(parameters, load);
  for (const auto& [name, tensor] : parameters.tensors) file.tensors.erase(name);
  file.tensors.merge(save_parameters(module, ParameterNaming::Separate).tensors);
}

/// The options take part as if the file had said them.
void state_heads(TensorFile& file, const FileOptions& options) {
  for (const auto& [name, heads] :
       {std::pair{"num_heads", options.heads}, std::pair{"num_kv_heads", options.kv_heads}}) {
    if (heads) file.metadata[name] = std::to_string(*heads);
  }
}

Recorded take_recorded(LayerSample<double>& sample) {
  Recorded recorded;
  recorded.query_before_rotary = std::move(sample.query_before_rotary);
  recorded.key_before_rotary = std::move(sample.key_before_rotary);
  recorded.query = std::move(sample.query);
  recorded.key = std::move(sample.key);
  recorded.value = std::move(sample.value);
  recorded.weights = std::move(sample.weights);
  recorded.context = std::move(sample.context);
  recorded.output = std::move(sample.output);
  return recorded;
}

/// In self attention the padded keys are padded queries too.
std::optional<Tensor<bool, 2>> padded_queries(const LayerSample<double>& sample) {
  if (!sample.keep || sample.keys != sample.queries) return std::nullopt;
  Tensor<bool, 2> padded(sample.keep->shape());
  std::transform(sample.keep->elements().begin(), sample.keep->elements().end(),
                 padded.elements().begin(), [](bool keep) { return !keep; });
  return padded;
}

}  // namespace

TraceInput trace_file(const std::string& path, const FileOptions& options) {
  TensorFile file = read_tensors(path);
  TraceInput input;
  const Mask mask = take_mask(file, options);
  if (options.bias_tensor) {
    input.bias = to_rank_four<double>(take(file, *options.bias_tensor), *options.bias_tensor);
  }
  rename_parameters(file, options);
  state_heads(file, options);
  LayerSample<double> sample = read_layer_sample<double>(file);

  input.source = sample.source.empty() ? path : fmt::format("{}: {}", path, sample.source);
  input.mask = sample.mask & mask;
  input.padded_queries = padded_queries(sample);
  input.tokens = sample.tokens;
  if (sample.parameters) {
    MultiHeadAttentionOptions module = sample.module_options();
    module.scale = options.scale;
    input.call = ModuleCall{{module, std::move(*sample.parameters)},
                            std::move(*sample.input),
                            std::nullopt,
                            std::move(sample.positions)};
    input.recorded = take_recorded(sample);
  } else {
    input.call = HeadTensors{std::move(*sample.query), std::move(*sample.key),
                             std::move(*sample.value), options.scale};
    sample.query = sample.key = sample.value = std::nullopt;
    input.recorded = take_recorded(sample);
  }
  return input;
}

}  // namespace qkv::lab
