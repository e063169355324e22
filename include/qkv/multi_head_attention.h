// Multi-head attention as a module: projections, heads, attention, merge, output projection; forward,
// backward, and parameters under the names that other libraries use.
//
//   Q = X_q·Wqᵀ + b_q   K = X_k·Wkᵀ + b_k   V = X_v·Wvᵀ + b_v      weights are [out, in]
//   heads split as (h d): column h·D + d is element d of head h
//   optional RMS norm of Q and K per head, then optional rotary positions on Q and K
//   context = attention(Q, K, V)     out = merge(context)·Woᵀ + b_o
#pragma once

#include <optional>
#include <string>

#include "qkv/attention.h"
#include "qkv/io.h"
#include "qkv/rotary.h"

namespace qkv {

/// Which projections carry a bias.
struct ProjectionBiases {
  bool query = false;
  bool key = false;
  bool value = false;
  bool output = false;

  static ProjectionBiases all() { return {true, true, true, true}; }
};

struct QkNormOptions {
  double epsilon = 1e-6;
};

struct MultiHeadAttentionOptions {
  Index model_width = 0;                           ///< columns of the query input and of the output
  Index heads = 0;                                 ///< H
  std::optional<Index> kv_heads = std::nullopt;    ///< Hkv, divides H; H where absent
  std::optional<Index> head_width = std::nullopt;  ///< Dk; model_width / heads where absent
  std::optional<Index> value_head_width = std::nullopt;  ///< Dv; Dk where absent
  /// Columns of the key and of the value input; model_width where absent.
  std::optional<Index> key_width = std::nullopt;
  std::optional<Index> value_width = std::nullopt;
  ProjectionBiases biases = {};
  std::optional<QkNormOptions> qk_norm = std::nullopt;
  std::optional<RotaryOptions> rotary = std::nullopt;
  std::optional<double> scale = std::nullopt;  ///< 1/√Dk where absent
  std::optional<double> softcap = std::nullopt;
};

/// Parameters, or their gradients. Absent where the options have none.
template <class T>
struct MultiHeadAttentionParameters {
  Tensor<T, 2> query_weight;                               ///< [H·Dk, model_width]
  Tensor<T, 2> key_weight;                                 ///< [Hkv·Dk, key_width]
  Tensor<T, 2> value_weight;                               ///< [Hkv·Dv, value_width]
  Tensor<T, 2> output_weight;                              ///< [model_width, H·Dv]
  std::optional<Tensor<T, 1>> query_bias = std::nullopt;   ///< [H·Dk]
  std::optional<Tensor<T, 1>> key_bias = std::nullopt;     ///< [Hkv·Dk]
  std::optional<Tensor<T, 1>> value_bias = std::nullopt;   ///< [Hkv·Dv]
  std::optional<Tensor<T, 1>> output_bias = std::nullopt;  ///< [model_width]
  std::optional<Tensor<T, 1>> query_norm = std::nullopt;   ///< [Dk]
  std::optional<Tensor<T, 1>> key_norm = std::nullopt;     ///< [Dk]
};

/// Parameters of the right shapes for the options: zero, norms one. Throws std::invalid_argument where the
/// options do not fit together (heads not dividing the width, an odd rotary width, …).
template <class T>
MultiHeadAttentionParameters<T> zero_parameters(const MultiHeadAttentionOptions& options);

/// Names under which parameters are stored.
enum class ParameterNaming : std::uint8_t {
  /// nn.MultiheadAttention: in_proj_weight or {q,k,v}_proj_weight, in_proj_bias, out_proj.{weight,bias}
  PyTorch,
  /// The lesson's class: qkv.weight [3D,D], out.weight; qkv.bias, out.bias
  Fused,
  /// {q,k,v,o}_proj.{weight,bias}, {q,k}_norm.weight
  Separate,
};

/// What one forward call reads. Self attention: give only `query`. Any strides.
template <class T>
struct MultiHeadAttentionInputs {
  /// [B,T,model_width].
  TensorView<const T, 3> query;
  /// [B,S,key_width]; the query input where absent.
  std::optional<TensorView<const T, 3>> key = std::nullopt;
  /// [B,S,value_width]; the key input where absent.
  std::optional<TensorView<const T, 3>> value = std::nullopt;
  Mask mask = {};
  std::optional<TensorView<const T, 4>> bias = std::nullopt;  ///< broadcasts to [B,H,T,S]
  std::optional<Alibi> alibi = std::nullopt;
  /// [B,T] or [1,T]; 0, 1, 2, … where absent. Refused without rotary positions.
  std::optional<TensorView<const Index, 2>> query_positions = std::nullopt;
  /// [B,S] or [1,S]; where absent those of the query in self attention, else 0, 1, 2, ….
  std::optional<TensorView<const Index, 2>> key_positions = std::nullopt;
};

/// Results of a forward call, with what the backward call needs.
template <class T>
struct MultiHeadAttentionResult {
  Tensor<T, 3> output;                                 ///< [B,T,model_width]
  std::optional<Tensor<T, 4>> weights = std::nullopt;  ///< [B,H,T,S], where asked for
  Tensor<T, 3> log_sum_exp;                            ///< [B,H,T]

  Tensor<T, 3> query_projection;  ///< [B,T,H·Dk], before norm and rotary positions
  Tensor<T, 3> key_projection;    ///< [B,S,Hkv·Dk]
  Tensor<T, 3> value_projection;  ///< [B,S,Hkv·Dv]
  Tensor<T, 4> query_heads;       ///< [B,H,T,Dk], as they enter the scores
  Tensor<T, 4> key_heads;         ///< [B,Hkv,S,Dk]
  Tensor<T, 4> context;           ///< [B,H,T,Dv]
};

enum class ReturnWeights : std::uint8_t { No, Yes };

template <class T>
struct MultiHeadAttentionGradients {
  Tensor<T, 3> query;  ///< [B,T,model_width]; in self attention the sum over all three uses
  std::optional<Tensor<T, 3>> key = std::nullopt;    ///< where a key input was given
  std::optional<Tensor<T, 3>> value = std::nullopt;  ///< where a value input was given
  std::optional<Tensor<T, 4>> bias = std::nullopt;   ///< where a bias was given, in its shape
  MultiHeadAttentionParameters<T> parameters;
};

/// The module. T is double or float. Calls are re-entrant on a const module.
template <class T>
class MultiHeadAttention {
 public:
  /// Throws std::invalid_argument where options do not fit together or parameters do not fit them.
  MultiHeadAttention(const MultiHeadAttentionOptions& options,
                     MultiHeadAttentionParameters<T> parameters);

  const MultiHeadAttentionOptions& options() const noexcept { return options_; }
  const MultiHeadAttentionParameters<T>& parameters() const noexcept { return parameters_; }
  MultiHeadAttentionParameters<T>& parameters() noexcept { return parameters_; }

  /// Throws std::invalid_argument where inputs do not fit the options.
  MultiHeadAttentionResult<T> forward(const MultiHeadAttentionInputs<T>& inputs,
                                      ReturnWeights return_weights = ReturnWeights::No) const;

  /// Derivatives of a loss, given those with respect to output ([B,T,model_width]) and, optionally,
  /// weights ([B,H,T,S]). `inputs` and `result` are those of the forward call. A token whose gradient
  /// is zero (padding that no query sees and whose own output nobody uses) leaves no trace in any
  /// derivative, even where it is NaN or infinite.
  MultiHeadAttentionGradients<T> backward(
      const MultiHeadAttentionInputs<T>& inputs, const MultiHeadAttentionResult<T>& result,
      const TensorView<const T, 3>& output_gradient,
      const std::optional<TensorView<const T, 4>>& weights_gradient = std::nullopt) const;

 private:
  MultiHeadAttentionOptions options_;
  MultiHeadAttentionParameters<T> parameters_;
};

/// Parameters as named tensors, with the metadata "num_heads" (which .npz cannot hold: clear it there).
/// Throws std::invalid_argument where the naming cannot hold the parameters (PyTorch: grouped heads, other
/// head widths, norms, biases of only some projections; Fused: these, biases of only some inputs, or inputs
/// of different widths).
template <class T>
TensorFile save_parameters(const MultiHeadAttention<T>& module, ParameterNaming naming);

/// What the file cannot say: the number of heads, and numbers that are not parameters.
struct LoadOptions {
  std::optional<Index> heads = std::nullopt;  ///< else metadata "num_heads"
  std::optional<Index> kv_heads =
      std::nullopt;  ///< follows from the shapes; where given, they must agree
  std::optional<RotaryOptions> rotary = std::nullopt;
  std::optional<double> scale = std::nullopt;
  std::optional<double> softcap = std::nullopt;
  QkNormOptions qk_norm = {};  ///< used where the file has norms
  std::string prefix = {};     ///< in front of every name, e.g. "layers.3.self_attn."
};

/// Recognises the naming, derives widths from the shapes and converts to T. Tensors outside of the prefix
/// are ignored; throws std::invalid_argument that names a missing, unknown, misshapen or integer tensor
/// under it.
template <class T>
MultiHeadAttention<T> load_parameters(const TensorFile& file, const LoadOptions& options);

}  // namespace qkv
