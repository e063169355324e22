#include "check/align_module.h"

#include <algorithm>
#include <string>

#include "qkv/multi_head_attention.h"

namespace qkv {
namespace {

bool is_parameter(const std::string& name) { return name.find("proj") != std::string::npos; }

template <class T>
MultiHeadAttention<T> load_module(const AlignCase& align_case, const TensorFile& inputs) {
  TensorFile parameters;
  for (const auto& [name, tensor] : inputs.tensors) {
    if (is_parameter(name)) parameters.tensors[name] = tensor;
  }
  LoadOptions options;
  options.heads = align_case.heads;
  return load_parameters<T>(parameters, options);
}

/// The inputs, owned, with the masks as this library understands them.
template <class T>
struct ModuleInputs {
  Tensor<T, 3> query;
  std::optional<Tensor<T, 3>> key;
  std::optional<Tensor<T, 3>> value;
  std::optional<Tensor<T, 4>> bias;
  Mask mask;

  MultiHeadAttentionInputs<T> view() const {
    MultiHeadAttentionInputs<T> inputs;
    inputs.query = query.view();
    if (key) inputs.key = key->view();
    if (value) inputs.value = value->view();
    if (bias) inputs.bias = bias->view();
    inputs.mask = mask;
    return inputs;
  }
};

/// [T,S] → [1,1,T,S]; [B·H,T,S] → [B,H,T,S].
template <class Element>
Tensor<Element, 4> with_batch_and_heads(const AlignCase& align_case, const StoredTensor& mask) {
  const Extents<4> shape = {align_case.mask_is_per_head() ? align_case.batch : 1,
                            align_case.mask_is_per_head() ? align_case.heads : 1,
                            align_case.queries, align_case.keys};
  if (align_case.mask_is_per_head()) {
    const auto flat = mask.to<Element, 3>("attn_mask");
    return contiguous_copy(view_as<4>(flat.view(), shape));
  }
  const auto flat = mask.to<Element, 2>("attn_mask");
  return contiguous_copy(view_as<4>(flat.view(), shape));
}

template <class T>
ModuleInputs<T> read_inputs(const AlignCase& align_case, const TensorFile& file) {
  ModuleInputs<T> inputs;
  inputs.query = file.at("query").to<T, 3>("query");
  if (file.contains("key")) inputs.key = file.at("key").to<T, 3>("key");
  if (file.contains("value")) inputs.value = file.at("value").to<T, 3>("value");
  if (align_case.is_causal()) {
    inputs.mask = Mask::causal(Corner::top_left());
  } else if (file.contains("attn_mask")) {
    const StoredTensor& attn_mask = file.at("attn_mask");
    if (attn_mask.dtype() == DType::Bool) {
      const auto hides = with_batch_and_heads<bool>(align_case, attn_mask);
      inputs.mask = Mask::boolean(hides.view(), Polarity::Drop);
    } else {
      inputs.bias = with_batch_and_heads<T>(align_case, attn_mask);
    }
  }
  if (file.contains("key_padding_mask")) {
    const auto hides = file.at("key_padding_mask").to<bool, 2>("key_padding_mask");
    inputs.mask = inputs.mask & Mask::key_padding(hides.view(), Polarity::Drop);
  }
  return inputs;
}

template <class T, int Rank>
StoredTensor stored(const Tensor<T, Rank>& tensor) {
  return store(tensor.view());
}

/// Files gradients under "LOSS.NAME"; the bias takes the shape of attn_mask again.
template <class T>
void add_gradients(const std::string& loss, const MultiHeadAttentionOptions& options,
                   const AlignCase& align_case, const MultiHeadAttentionGradients<T>& gradients,
                   TensorFile& results) {
  results.tensors[loss + ".query"] = stored(gradients.query);
  if (gradients.key) results.tensors[loss + ".key"] = stored(*gradients.key);
  if (gradients.value) results.tensors[loss + ".value"] = stored(*gradients.value);
  if (gradients.bias) {
    const auto bias = gradients.bias->view();
    results.tensors[loss + ".attn_mask"] =
        align_case.mask_is_per_head()
            ? store(view_as<3>(bias, {bias.shape(0) * bias.shape(1), bias.shape(2), bias.shape(3)}))
            : store(view_as<2>(bias, {bias.shape(2), bias.shape(3)}));
  }
  const MultiHeadAttention<T> as_module(options, gradients.parameters);
  for (auto& [name, tensor] : save_parameters(as_module, ParameterNaming::PyTorch).tensors) {
    std::string full_name = loss + ".";
    full_name += name;
    results.tensors[full_name] = std::move(tensor);
  }
}

}  // namespace

template <class T>
TensorFile run_module(const AlignCase& align_case, const TensorFile& file) {
  const MultiHeadAttention<T> module = load_module<T>(align_case, file);
  const ModuleInputs<T> owned = read_inputs<T>(align_case, file);
  const MultiHeadAttentionInputs<T> inputs = owned.view();
  const auto output_gradient = file.at("output_gradient").to<T, 3>("output_gradient");
  const auto weights_gradient = file.at("weights_gradient").to<T, 4>("weights_gradient");
  Tensor<T, 3> ones(output_gradient.shape());
  std::ranges::fill(ones.elements(), T{1});

  const auto result = module.forward(inputs, ReturnWeights::Yes);
  TensorFile results;
  results.tensors["output"] = stored(module.forward(inputs).output);
  results.tensors["output_with_weights"] = stored(result.output);
  results.tensors["weights"] = stored(*result.weights);
  const auto add = [&](const std::string& loss, const MultiHeadAttentionGradients<T>& gradients) {
    add_gradients(loss, module.options(), align_case, gradients, results);
  };
  const TensorView<const T, 3> random = output_gradient.view();
  add("sum", module.backward(inputs, result, std::as_const(ones).view()));
  add("random", module.backward(inputs, result, random));
  add("weighted", module.backward(inputs, result, random, weights_gradient.view()));
  return results;
}

template TensorFile run_module<double>(const AlignCase& align_case, const TensorFile& file);
template TensorFile run_module<float>(const AlignCase& align_case, const TensorFile& file);

}  // namespace qkv
