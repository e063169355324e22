// PyTorch's C++ API as what is measured against, in every form that it has.

#include <malloc.h>

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

class TorchCall : public TimedCall {
 public:
  using Work = std::function<Tensor()>;

  TorchCall(std::string form, Work work) : form_(std::move(form)), work_(std::move(work)) {}

  void run() override try {
    const c10::InferenceMode without_gradients;
    output_.reset();  // so that its memory, still in the caches, is used again
    output_ = work_();
  } catch (const c10::Error& error) {
    throw std::runtime_error("torch peer: " + form_ + ": " + error.what_without_backtrace());
  }

  StoredTensor output() const override {
    const c10::InferenceMode without_gradients;
    return stored(output_);
  }
  std::string form() const override { return form_; }

 private:
  std::string form_;
  Work work_;
  Tensor output_;
};

using Forms = std::vector<std::unique_ptr<TimedCall>>;

void add(Forms& forms, std::string name, TorchCall::Work work) {
  forms.push_back(std::make_unique<TorchCall>(std::move(name), std::move(work)));
}

Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value,
                 const std::optional<Tensor>& mask, bool causal) {
  return at::scaled_dot_product_attention(query, key, value, mask, /*dropout_p=*/0, causal);
}

/// A boolean mask is also tried as the float tensor that PyTorch would make of it in every call.
Forms attention_forms(const PeerCall& call) {
  const auto& inputs = call.inputs;
  const Tensor query = borrowed(inputs.at("query"));
  const Tensor key = borrowed(inputs.at("key"));
  const Tensor value = borrowed(inputs.at("value"));
  Forms forms;
  const auto add_form = [&](const std::string& with, const std::optional<Tensor>& mask) {
    add(forms, "scaled_dot_product_attention" + with,
        [=, causal = call.causal] { return attention(query, key, value, mask, causal); });
  };
  if (!inputs.contains("attn_mask")) {
    add_form(call.causal ? ", is_causal" : "", std::nullopt);
    return forms;
  }
  const Tensor mask = borrowed(inputs.at("attn_mask"));
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

/// torch::nn::MultiheadAttention itself, projections around the fused attention, and the function behind
/// nn.MultiheadAttention's inference in Python.
Forms module_forms(const PeerCall& call) {
  const auto& inputs = call.inputs;
  const Tensor x = borrowed(inputs.at("query"));
  const Tensor in_weight = borrowed(inputs.at("in_proj_weight"));
  const Tensor in_bias = borrowed(inputs.at("in_proj_bias"));
  const Tensor out_weight = borrowed(inputs.at("out_proj.weight"));
  const Tensor out_bias = borrowed(inputs.at("out_proj.bias"));
  const std::int64_t width = x.size(2);
  const std::int64_t heads = call.heads;
  Forms forms;

  torch::nn::MultiheadAttention module(torch::nn::MultiheadAttentionOptions(width, heads));
  module->to(x.scalar_type());
  module->eval();
  for (auto& parameter : module->named_parameters()) {
    const torch::NoGradGuard no_grad;
    parameter.value().copy_(borrowed(inputs.at(parameter.key())));
  }
  add(forms, "torch::nn::MultiheadAttention",
      [module, by_token = x.transpose(0, 1).contiguous()]() mutable {
        const auto result = module->forward(by_token, by_token, by_token, /*key_padding_mask=*/{},
                                            /*need_weights=*/false);
        return std::get<0>(result).transpose(0, 1);
      });
  add(forms, "linear, scaled_dot_product_attention, linear", [=] {
    const auto heads_of = [&](const Tensor& merged) {
      return merged.view({x.size(0), x.size(1), heads, -1}).transpose(1, 2);
    };
    const std::vector<Tensor> qkv = torch::linear(x, in_weight, in_bias).chunk(3, -1);
    const Tensor context = attention(heads_of(qkv[0]), heads_of(qkv[1]), heads_of(qkv[2]),
                                     std::nullopt, /*causal=*/false);
    return torch::linear(context.transpose(1, 2).flatten(2), out_weight, out_bias);
  });
  add(forms, "_native_multi_head_attention", [=] {
    return std::get<0>(at::_native_multi_head_attention(x, x, x, width, heads, in_weight, in_bias,
                                                        out_weight, out_bias, /*mask=*/{},
                                                        /*need_weights=*/false));
  });
  return forms;
}

// MKL, PyTorch's BLAS, takes its AVX-512 kernels on Intel's processors alone; on others that have AVX-512 it is up to twice
// as fast when told that they are Intel's. It asks once, through the function at the end of this file.
bool any_vendor = false;

class TorchTimedPeer : public TimedPeer {
 public:
  explicit TorchTimedPeer(PeerTuning tuning) {
    description_ = {"PyTorch " TORCH_VERSION " in C++, in inference mode, on the same threads of OpenMP"};
    if (tuning == PeerTuning::AsShipped) {
      description_.emplace_back("as shipped");
      return;
    }
    // PyTorch allocates its results and scratch anew in every call. Left to itself, glibc returns them to the system, and
    // every call pays for the page faults.
    if (::mallopt(M_MMAP_MAX, 0) == 1 &&
        ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max()) == 1) {
      description_.emplace_back("allocator tuned: M_MMAP_MAX=0, M_TRIM_THRESHOLD=2^31-1 (memory stays in the process)");
    }
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f") && !__builtin_cpu_is("intel")) {
      any_vendor = true;
      description_.emplace_back("BLAS tuned: MKL may use AVX-512, which it keeps for Intel's processors");
    }
#endif
  }

  std::vector<std::string> describe() const override { return description_; }

  Forms prepare(const PeerCall& call, int threads) override try {
    at::set_num_threads(threads);
    if (call.function == peer_function::attention) return attention_forms(call);
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
