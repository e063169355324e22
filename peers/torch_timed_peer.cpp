// PyTorch's C++ API as what is measured against, in every form that it has.

#include <malloc.h>

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>
#include <torch/version.h>

#include "check/peer_plugin.h"
#include "check/timed_peer.h"
#include "peers/torch_tensors.h"

namespace qkv {
namespace {

using torch::Tensor;

using Named = std::vector<std::pair<std::string, Tensor>>;

/// One form of a call; with leaves and a gradient of the output, also the way back.
class TorchCall : public TimedCall {
 public:
  using Work = std::function<Tensor()>;

  TorchCall(std::string form, Work work, Named leaves, Tensor output_gradient)
      : form_(std::move(form)),
        work_(std::move(work)),
        output_gradient_(std::move(output_gradient)) {
    for (auto& [name, leaf] : leaves) {
      names_.push_back(name);
      leaves_.push_back(leaf);
    }
  }

  void run() override try {
    // So that memory which is still in the caches is used again.
    output_.reset();
    gradients_.clear();
    if (output_gradient_.defined()) {
      output_ = work_();
      gradients_ = torch::autograd::grad({output_}, leaves_, {output_gradient_});
    } else {
      const c10::InferenceMode without_gradients;
      output_ = work_();
    }
  } catch (const c10::Error& error) {
    throw std::runtime_error("torch peer: " + form_ + ": " + error.what_without_backtrace());
  }

  TensorFile results() const override {
    const torch::NoGradGuard no_grad;
    TensorFile results;
    results.tensors["output"] = stored(output_);
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      results.tensors["random." + names_[i]] = stored(gradients_[i]);
    }
    return results;
  }
  std::string form() const override { return form_; }

 private:
  std::string form_;
  Work work_;
  std::vector<std::string> names_;
  std::vector<Tensor> leaves_;
  Tensor output_gradient_;
  Tensor output_;
  std::vector<Tensor> gradients_;
};

using Forms = std::vector<std::unique_ptr<TimedCall>>;

/// The inputs of a call, borrowed; leaves of the graph where gradients are asked for.
class Inputs {
 public:
  explicit Inputs(const TensorFile& file) : file_(file) {
    if (file.contains("output_gradient")) output_gradient_ = borrowed(file.at("output_gradient"));
  }

  Tensor leaf(const std::string& name) {
    Tensor tensor = borrowed(file_.at(name));
    if (with_gradients()) leaves_.emplace_back(name, tensor.requires_grad_());
    return tensor;
  }
  bool with_gradients() const { return output_gradient_.defined(); }

  std::unique_ptr<TimedCall> form(std::string name, TorchCall::Work work) const {
    return std::make_unique<TorchCall>(std::move(name), std::move(work), leaves_, output_gradient_);
  }

 private:
  const TensorFile& file_;
  Tensor output_gradient_;
  Named leaves_;
};

Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value,
                 const std::optional<Tensor>& mask, bool causal) {
  return at::scaled_dot_product_attention(query, key, value, mask, /*dropout_p=*/0, causal);
}

/// A boolean mask is also tried as the float tensor that PyTorch would make of it in every call.
Forms attention_forms(const PeerCall& call) {
  Inputs inputs(call.inputs);
  const Tensor query = inputs.leaf("query");
  const Tensor key = inputs.leaf("key");
  const Tensor value = inputs.leaf("value");
  Forms forms;
  const auto add_form = [&](const std::string& with, const std::optional<Tensor>& mask) {
    forms.push_back(inputs.form("scaled_dot_product_attention" + with, [=, causal = call.causal] {
      return attention(query, key, value, mask, causal);
    }));
  };
  if (!call.inputs.contains("attn_mask")) {
    add_form(call.causal ? ", is_causal" : "", std::nullopt);
    return forms;
  }
  const Tensor mask = borrowed(call.inputs.at("attn_mask"));
  if (mask.scalar_type() != torch::kBool) {
    add_form(", float mask", mask);
    return forms;
  }
  add_form(", bool mask", mask);
  add_form(", float mask of -inf",
           torch::zeros(mask.sizes(), query.scalar_type())
               .masked_fill_(mask.logical_not(), -std::numeric_limits<double>::infinity()));
  return forms;
}

/// torch::nn::MultiheadAttention with the call's parameters; the view of its result that is [B,T,D].
std::unique_ptr<TimedCall> module_form(const PeerCall& call) {
  const TensorFile& inputs = call.inputs;
  const bool with_gradients = inputs.contains("output_gradient");
  const Tensor x = borrowed(inputs.at("query"));
  torch::nn::MultiheadAttention module(torch::nn::MultiheadAttentionOptions(x.size(2), call.heads));
  module->to(x.scalar_type());
  module->eval();
  Named leaves;
  if (with_gradients) leaves.emplace_back("query", x.requires_grad_());
  for (auto& parameter : module->named_parameters()) {
    const torch::NoGradGuard no_grad;
    parameter.value().copy_(borrowed(inputs.at(parameter.key())));
    if (with_gradients) leaves.emplace_back(parameter.key(), parameter.value());
  }
  return std::make_unique<TorchCall>(
      "torch::nn::MultiheadAttention",
      [module, x]() mutable {
        const Tensor by_token = x.transpose(0, 1);
        const auto result = module->forward(by_token, by_token, by_token, /*key_padding_mask=*/{},
                                            /*need_weights=*/false);
        return std::get<0>(result).transpose(0, 1);
      },
      std::move(leaves), with_gradients ? borrowed(inputs.at("output_gradient")) : Tensor());
}

/// The module itself, projections around the fused attention, and the function behind nn.MultiheadAttention's inference
/// in Python, which has no gradients.
Forms module_forms(const PeerCall& call) {
  Inputs inputs(call.inputs);
  const Tensor x = inputs.leaf("query");
  const Tensor in_weight = inputs.leaf("in_proj_weight");
  const Tensor in_bias = inputs.leaf("in_proj_bias");
  const Tensor out_weight = inputs.leaf("out_proj.weight");
  const Tensor out_bias = inputs.leaf("out_proj.bias");
  const std::int64_t width = x.size(2);
  const std::int64_t heads = call.heads;
  Forms forms;
  forms.push_back(module_form(call));
  forms.push_back(inputs.form("linear, scaled_dot_product_attention, linear", [=] {
    const auto heads_of = [&](const Tensor& merged) {
      return merged.view({x.size(0), x.size(1), heads, -1}).transpose(1, 2);
    };
    const std::vector<Tensor> qkv = torch::linear(x, in_weight, in_bias).chunk(3, -1);
    const Tensor context = attention(heads_of(qkv[0]), heads_of(qkv[1]), heads_of(qkv[2]),
                                     std::nullopt, /*causal=*/false);
    return torch::linear(context.transpose(1, 2).flatten(2), out_weight, out_bias);
  }));
  if (inputs.with_gradients()) return forms;
  forms.push_back(inputs.form("_native_multi_head_attention", [=] {
    return std::get<0>(at::_native_multi_head_attention(x, x, x, width, heads, in_weight, in_bias,
                                                        out_weight, out_bias, /*mask=*/{},
                                                        /*need_weights=*/false));
  }));
  return forms;
}

/// The keys and values of the next sequence in turn.
class Sequences {
 public:
  Sequences(Tensor key, Tensor value) : key_(std::move(key)), value_(std::move(value)) {}

  std::pair<Tensor, Tensor> next() {
    const std::int64_t i = next_++ % key_.size(0);
    return {key_.slice(0, i, i + 1), value_.slice(0, i, i + 1)};
  }

 private:
  Tensor key_;
  Tensor value_;
  std::int64_t next_ = 0;
};

/// The fused function, with its own grouping and grouped by hand, and three steps by hand.
Forms decode_forms(const PeerCall& call) {
  Inputs inputs(call.inputs);
  const Tensor query = inputs.leaf("query");
  const auto sequences =
      std::make_shared<Sequences>(inputs.leaf("key"), borrowed(call.inputs.at("value")));
  const std::int64_t tokens = query.size(2);
  const std::int64_t keys = call.inputs.at("key").shape()[2];
  const std::int64_t kv_heads = call.inputs.at("key").shape()[1];
  const std::int64_t group = query.size(1) / kv_heads;
  std::optional<Tensor> mask;
  if (tokens > 1) mask = torch::ones({tokens, keys}, torch::kBool).tril(keys - tokens);

  Forms forms;
  forms.push_back(inputs.form(
      group == 1 ? "scaled_dot_product_attention" : "scaled_dot_product_attention, enable_gqa",
      [=] {
        const auto [key, value] = sequences->next();
        return at::scaled_dot_product_attention(query, key, value, mask, /*dropout_p=*/0,
                                                /*is_causal=*/false,
                                                /*scale=*/std::nullopt, /*enable_gqa=*/group > 1);
      }));
  if (tokens > 1) return forms;
  const Tensor grouped = query.view({1, kv_heads, group, query.size(3)});
  if (group > 1) {
    forms.push_back(inputs.form("scaled_dot_product_attention, heads of a group as queries", [=] {
      const auto [key, value] = sequences->next();
      return attention(grouped, key, value, std::nullopt, /*causal=*/false).view(query.sizes());
    }));
  }
  forms.push_back(inputs.form("matmul, softmax, matmul", [=] {
    const auto [key, value] = sequences->next();
    const double scale = 1 / std::sqrt(static_cast<double>(query.size(3)));
    const Tensor weights = torch::softmax(torch::matmul(grouped * scale, key.transpose(2, 3)), -1);
    return torch::matmul(weights, value).view(query.sizes());
  }));
  return forms;
}

// MKL, PyTorch's BLAS, takes its AVX-512 kernels on Intel's processors alone; on others that have AVX-512 it is up to twice
// as fast when told that they are Intel's. It asks once, through the function at the end of this file.
bool any_vendor = false;

class TorchTimedPeer : public TimedPeer {
 public:
  explicit TorchTimedPeer(PeerTuning tuning) {
    description_ = {"PyTorch " TORCH_VERSION
                    " in C++, forward alone in inference mode, on the same threads of OpenMP"};
    if (tuning == PeerTuning::AsShipped) {
      description_.emplace_back("as shipped");
      return;
    }
    // PyTorch allocates its results and scratch anew in every call. Left to itself, glibc returns them to the system, and
    // every call pays for the page faults.
    if (::mallopt(M_MMAP_MAX, 0) == 1 &&
        ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max()) == 1) {
      description_.emplace_back(
          "allocator tuned: M_MMAP_MAX=0, M_TRIM_THRESHOLD=2^31-1 (memory stays in the process)");
    }
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f") && !__builtin_cpu_is("intel")) {
      any_vendor = true;
      description_.emplace_back(
          "BLAS tuned: MKL may use AVX-512, which it keeps for Intel's processors");
    }
#endif
  }

  std::vector<std::string> describe() const override { return description_; }

  Forms prepare(const PeerCall& call, int threads) override try {
    at::set_num_threads(threads);
    if (call.function == peer_function::attention) return attention_forms(call);
    if (call.function == peer_function::decode) return decode_forms(call);
    if (call.function == peer_function::module_cpp) return module_forms(call);
    throw std::invalid_argument("torch peer: function: unknown: " + call.function);
  } catch (const c10::Error& error) {
    throw std::runtime_error("torch peer: " + call.function + ": " +
                             error.what_without_backtrace());
  }

 private:
  std::vector<std::string> description_;
};

}  // namespace
}  // namespace qkv

extern "C" {

__attribute__((visibility("default"))) qkv::TimedPeer* qkv_make_timed_peer(qkv::PeerTuning tuning) {
  return new qkv::TorchTimedPeer(tuning);
}

#ifdef __x86_64__
// Found before MKL's own, for this plugin comes first in the scope of what it loads.
__attribute__((visibility("default"))) int mkl_serv_intel_cpu_true() {
  return qkv::any_vendor || __builtin_cpu_is("intel") ? 1 : 0;
}
#endif

}  // extern "C"
