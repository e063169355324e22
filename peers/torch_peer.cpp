// PyTorch's C++ API as a peer: torch::nn::MultiheadAttention and scaled_dot_product_attention.

#include <torch/torch.h>
#include <torch/version.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "check/peer.h"
#include "check/peer_plugin.h"
#include "peers/torch_tensors.h"

namespace qkv {
namespace {

using torch::Tensor;
using Named = std::vector<std::pair<std::string, Tensor>>;

/// The inputs of one call as tensors of PyTorch, copied.
class Inputs {
 public:
  explicit Inputs(const TensorFile& file) {
    for (const auto& [name, one] : file.tensors) {
      tensors_.emplace_back(name, borrowed(one).clone());
    }
  }

  /// Undefined where there is none of that name.
  Tensor get(const std::string& name) const {
    const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                    [&](const auto& entry) { return entry.first == name; });
    return found == tensors_.end() ? Tensor() : found->second;
  }

  /// Those of the names that are there, made leaves of the graph.
  Named leaves(const std::vector<std::string>& names) const {
    Named found;
    for (const std::string& name : names) {
      if (Tensor tensor = get(name); tensor.defined()) {
        found.emplace_back(name, tensor.requires_grad_());
      }
    }
    return found;
  }

 private:
  Named tensors_;
};

const std::vector<std::string> kParameterNames = {
    "in_proj_weight", "q_proj_weight",   "k_proj_weight", "v_proj_weight",
    "in_proj_bias",   "out_proj.weight", "out_proj.bias"};

void add_gradients(const std::string& loss_name, const Tensor& loss, const Named& leaves,
                   TensorFile& results) {
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : leaves) tensors.push_back(tensor);
  const auto gradients = torch::autograd::grad({loss}, tensors, {}, /*retain_graph=*/true);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    results.tensors[loss_name + "." + leaves[i].first] = stored(gradients[i]);
  }
}

Tensor additive(const Tensor& hides, torch::ScalarType dtype) {
  return torch::zeros(hides.sizes(), dtype)
      .masked_fill(hides, -std::numeric_limits<double>::infinity());
}

torch::nn::MultiheadAttention make_module(const PeerCall& call, const Inputs& inputs) {
  const Tensor query = inputs.get("query");
  const Tensor key = inputs.get("key");
  const Tensor value = inputs.get("value");
  torch::nn::MultiheadAttention module(
      torch::nn::MultiheadAttentionOptions(query.size(2), call.heads)
          .bias(inputs.get("in_proj_bias").defined())
          .kdim(key.defined() ? key.size(2) : query.size(2))
          .vdim(value.defined() ? value.size(2) : query.size(2)));
  module->to(query.scalar_type());
  const torch::NoGradGuard no_grad;
  for (auto& parameter : module->named_parameters()) {
    parameter.value().copy_(inputs.get(parameter.key()));
  }
  return module;
}

/// torch::nn::MultiheadAttention takes [T,B,D] and adds whatever attn_mask holds.
TensorFile run_module(const PeerCall& call) {
  const Inputs inputs(call.inputs);
  auto module = make_module(call, inputs);
  Named leaves = inputs.leaves({"query", "key", "value"});
  const Tensor query = leaves[0].second;
  const Tensor key = inputs.get("key").defined() ? inputs.get("key") : query;
  const Tensor value = inputs.get("value").defined() ? inputs.get("value") : query;
  for (const auto& parameter : module->named_parameters()) {
    leaves.emplace_back(parameter.key(), parameter.value());
  }
  Tensor mask = inputs.get("attn_mask");
  if (mask.defined() && mask.scalar_type() == torch::kBool) {
    mask = additive(mask, query.scalar_type());
  } else if (mask.defined()) {
    leaves.emplace_back("attn_mask", mask.requires_grad_());
  }

  const auto [by_token, weights] = module->forward(
      query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1),
      inputs.get("key_padding_mask"), /*need_weights=*/true, mask, /*average_attn_weights=*/false);
  const Tensor output = by_token.transpose(0, 1);
  const Tensor random = (output * inputs.get("output_gradient")).sum();
  TensorFile results;
  results.tensors["output"] = stored(output);
  results.tensors["weights"] = stored(weights);
  add_gradients("sum", output.sum(), leaves, results);
  add_gradients("random", random, leaves, results);
  add_gradients("weighted", random + (weights * inputs.get("weights_gradient")).sum(), leaves,
                results);
  return results;
}

/// What may be seen: bool, true keeps, or a float bias; undefined where everything may.
Tensor combined_mask(const PeerCall& call, const Inputs& inputs, torch::ScalarType dtype) {
  Tensor mask = inputs.get("attn_mask");
  Tensor padding = inputs.get("key_padding_mask");
  if (padding.defined()) padding = padding.view({padding.size(0), 1, 1, padding.size(1)});
  if (!mask.defined()) return padding.defined() ? padding.logical_not() : Tensor();
  mask = mask.view({-1, mask.dim() == 3 ? call.heads : 1, mask.size(-2), mask.size(-1)});
  if (mask.scalar_type() == torch::kBool) {
    return padding.defined() ? (mask | padding).logical_not() : mask.logical_not();
  }
  return padding.defined() ? mask + additive(padding, dtype) : mask;
}

/// Projections by torch::linear around scaled_dot_product_attention.
TensorFile run_scaled_dot_product(const PeerCall& call) {
  const Inputs inputs(call.inputs);
  std::vector<std::string> names = {"query", "key", "value"};
  names.insert(names.end(), kParameterNames.begin(), kParameterNames.end());
  const Named leaves = inputs.leaves(names);

  const Tensor query = inputs.get("query");
  const Tensor key = inputs.get("key").defined() ? inputs.get("key") : query;
  const Tensor value = inputs.get("value").defined() ? inputs.get("value") : query;
  const Tensor fused = inputs.get("in_proj_weight");
  const std::vector<Tensor> weights =
      fused.defined()
          ? fused.chunk(3)
          : std::vector<Tensor>{inputs.get("q_proj_weight"), inputs.get("k_proj_weight"),
                                inputs.get("v_proj_weight")};
  const Tensor fused_bias = inputs.get("in_proj_bias");
  const std::vector<Tensor> biases =
      fused_bias.defined() ? fused_bias.chunk(3) : std::vector<Tensor>(3);
  const auto project = [&](const Tensor& tokens, std::size_t which) {
    const Tensor merged = torch::linear(tokens, weights[which], biases[which]);
    return merged.view({merged.size(0), merged.size(1), call.heads, -1}).transpose(1, 2);
  };

  const bool only_causal = call.causal && !inputs.get("key_padding_mask").defined();
  const Tensor mask = only_causal ? Tensor() : combined_mask(call, inputs, query.scalar_type());
  const Tensor context = torch::scaled_dot_product_attention(
      project(query, 0), project(key, 1), project(value, 2),
      mask.defined() ? std::optional<Tensor>(mask) : std::nullopt, /*dropout_p=*/0, only_causal);
  const Tensor output = torch::linear(context.transpose(1, 2).flatten(2),
                                      inputs.get("out_proj.weight"), inputs.get("out_proj.bias"));
  TensorFile results;
  results.tensors["output"] = stored(output);
  add_gradients("sum", output.sum(), leaves, results);
  add_gradients("random", (output * inputs.get("output_gradient")).sum(), leaves, results);
  return results;
}

class TorchPeer : public Peer {
 public:
  PeerResults run(const std::vector<PeerCall>& calls, const Progress& progress) override {
    PeerResults results;
    results.version = "PyTorch " TORCH_VERSION " in C++";
    for (std::size_t i = 0; i < calls.size(); ++i) {
      progress(i);
      results.results.push_back(run_call(calls[i]));
    }
    return results;
  }

 private:
  static TensorFile run_call(const PeerCall& call) try {
    if (call.function == peer_function::module_cpp) return run_module(call);
    if (call.function == peer_function::scaled_dot_product) return run_scaled_dot_product(call);
    throw std::invalid_argument("torch peer: function: unknown: " + call.function);
  } catch (const c10::Error& error) {
    throw std::runtime_error("torch peer: " + call.function + ": " +
                             error.what_without_backtrace());
  }
};

}  // namespace
}  // namespace qkv

extern "C" {

__attribute__((visibility("default"))) const char* qkv_peer_interface() {
  return QKV_PEER_INTERFACE;
}

__attribute__((visibility("default"))) qkv::Peer* qkv_make_peer() { return new qkv::TorchPeer; }

}  // extern "C"
