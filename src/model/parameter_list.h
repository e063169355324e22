// The parameters of a decoder, or their gradients, as a list of names and elements.
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "model/decoder.h"

namespace qkv {

/// Parameters is DecoderParameters<T>, const or not. Each parameter that is trained, once: without the copies of tied ones.
template <class Parameters>
auto list_parameters(const DecoderOptions& options, Parameters& parameters);

/// What `changes` has for a block: the default where it is empty.
const AttentionChange& change_of(const DecoderOptions& options, Index block);

namespace detail {

template <class Element>
class ParameterLister {
 public:
  template <class Tensor>
  void add(std::string name, Tensor& tensor) {
    list_.push_back(
        {std::move(name), {tensor.shape().begin(), tensor.shape().end()}, tensor.elements()});
  }
  template <class Tensor>
  void add(const std::string& name, std::optional<Tensor>& tensor) {
    if (tensor) add(name, *tensor);
  }
  template <class Tensor>
  void add(const std::string& name, const std::optional<Tensor>& tensor) {
    if (tensor) add(name, *tensor);
  }

  template <class Norm>
  void add_norm(const std::string& name, Norm& norm) {
    add(name + ".weight", norm.weight);
    add(name + ".bias", norm.bias);
  }

  template <class Attention>
  void add_attention(const std::string& name, Attention& attention, Tying tying) {
    auto& p = attention.projections;
    add(name + ".q_proj.weight", p.query_weight);
    add(name + ".q_proj.bias", p.query_bias);
    if (tying != Tying::QueryIsKey) {
      add(name + ".k_proj.weight", p.key_weight);
      add(name + ".k_proj.bias", p.key_bias);
    }
    if (tying != Tying::KeyIsValue) {
      add(name + ".v_proj.weight", p.value_weight);
      add(name + ".v_proj.bias", p.value_bias);
    }
    add(name + ".o_proj.weight", p.output_weight);
    add(name + ".o_proj.bias", p.output_bias);
    add(name + ".matching.weight", attention.matching);
  }

  template <class Block>
  void add_block(const std::string& name, Block& block, Tying tying) {
    add_norm(name + ".attention_norm", block.attention_norm);
    add_attention(name + ".attention", block.attention, tying);
    if (!block.mlp) return;
    add_norm(name + ".mlp_norm", block.mlp->norm);
    add(name + ".mlp_in.weight", block.mlp->in_weight);
    add(name + ".mlp_in.bias", block.mlp->in_bias);
    add(name + ".mlp_out.weight", block.mlp->out_weight);
    add(name + ".mlp_out.bias", block.mlp->out_bias);
  }

  std::vector<NamedParameter<Element>> take() { return std::move(list_); }

 private:
  std::vector<NamedParameter<Element>> list_;
};

}  // namespace detail

template <class Parameters>
auto list_parameters(const DecoderOptions& options, Parameters& parameters) {
  using Element = std::remove_pointer_t<decltype(parameters.token_embedding.data())>;
  detail::ParameterLister<Element> lister;
  lister.add("token_embedding.weight", parameters.token_embedding);
  lister.add("position_embedding.weight", parameters.position_embedding);
  for (std::size_t i = 0; i < parameters.blocks.size(); ++i) {
    lister.add_block("blocks." + std::to_string(i), parameters.blocks[i],
                     change_of(options, static_cast<Index>(i)).tying);
  }
  lister.add_norm("final_norm", parameters.final_norm);
  lister.add("head.weight", parameters.head);
  return lister.take();
}

}  // namespace qkv
