// What one attention layer of a published model computed: its inputs, weights and recorded results, as
// data/README.md describes such a file. Names are those of the file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "qkv/io.h"
#include "qkv/mask.h"
#include "qkv/multi_head_attention.h"
#include "qkv/rotary.h"
#include "qkv/tensor.h"

namespace qkv {

/// T is double or float. A sample holds the input with the projections, or query, key and value, or both.
template <class T>
struct LayerSample {
  std::string source;  ///< metadata "source"; empty where absent

  Index batch = 0;             ///< B
  Index queries = 0;           ///< T
  Index keys = 0;              ///< S
  Index heads = 0;             ///< H
  Index kv_heads = 0;          ///< Hkv
  Index head_width = 0;        ///< Dk
  Index value_head_width = 0;  ///< Dv

  std::optional<Tensor<T, 3>> input;                          ///< x [B,T,D]
  std::optional<MultiHeadAttentionParameters<T>> parameters;  ///< {q,k,v,o}_proj.{weight,bias}

  std::optional<Tensor<T, 4>> query_before_rotary;  ///< q_before_rope [B,H,T,Dk]
  std::optional<Tensor<T, 4>> key_before_rotary;    ///< k_before_rope [B,Hkv,S,Dk]
  std::optional<Tensor<T, 4>> query;                ///< q [B,H,T,Dk], as it enters the scores
  std::optional<Tensor<T, 4>> key;                  ///< k [B,Hkv,S,Dk]
  std::optional<Tensor<T, 4>> value;                ///< v [B,Hkv,S,Dv]
  std::optional<Tensor<T, 4>> weights;              ///< [B,H,T,S]
  std::optional<Tensor<T, 3>> context;              ///< [B,T,H·Dv], heads merged
  std::optional<Tensor<T, 3>> output;               ///< out [B,T,D]

  std::optional<Tensor<bool, 2>> keep;  ///< attention_mask [B,S], true where the key takes part
  Mask mask;                            ///< of `keep` and metadata "causal"
  std::optional<RotaryOptions> rotary;  ///< metadata "rope_theta" and "rope_pairing"
  std::optional<Tensor<Index, 2>> positions;  ///< position_ids [B,T]

  std::vector<std::vector<std::string>> tokens;  ///< [B][T], metadata "tokens"; empty where absent
  std::vector<std::string> sentences;            ///< [B], metadata "sentences"; empty where absent

  /// The options of a module that holds `parameters`, which must be there.
  MultiHeadAttentionOptions module_options() const;
};

/// Every floating-point tensor is converted to T. Throws std::invalid_argument that starts with "layer
/// sample" where a tensor is missing, misshapen or of an unknown name, or metadata cannot be understood.
template <class T>
LayerSample<T> read_layer_sample(const TensorFile& file);

}  // namespace qkv
