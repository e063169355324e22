// Exact attention: the formula, its arguments and its results.
//
//   s[b,h,t,j] = scale · q[b,h,t,:]·k[b,h/g,j,:]          H = g·Hkv, query head h reads kv head h / g
//   s = softcap·tanh(s / softcap)                          where a softcap is given
//   s = s + bias[b,h,t,j] − slope[h]·|t + offset − j|      where a bias or ALiBi slopes are given
//   s = −∞                                                 where the mask hides key j from query t
//   lse = log(Σ_j exp(s) + exp(sink[h])),  p = exp(s − lse),  context = p·v
//
// A row that sees no key gives context 0, lse −∞ (the sink, where there is one) and zero gradients. A bias
// of −∞ hides a key as the mask does. NaN and infinity at hidden positions never reach a result; visible
// ones behave as IEEE arithmetic says, in exactly the rows that see them.
//
// Sources: Vaswani et al., "Attention Is All You Need" (2017), eq. 1; grouped heads: Ainslie et al., "GQA"
// (2023); ALiBi: Press et al., "Train Short, Test Long" (2021); softcap: Gemma Team, "Gemma 2" (2024).
#pragma once

#include <optional>
#include <vector>

#include "qkv/mask.h"
#include "qkv/tensor.h"

namespace qkv {

/// A penalty that grows with the distance of query and key; slopes are one a query head.
struct Alibi {
  std::vector<double> slopes;
  std::optional<Corner> corner;  ///< needed where T != S
};

/// The slopes that the ALiBi paper prescribes: 2^(−8i/H) for a power of two, interpolated otherwise.
std::vector<double> standard_alibi_slopes(Index heads);

/// T is double, float, Float16 or BFloat16. Any strides, 0 and negative included.
template <class T>
struct AttentionInputs {
  TensorView<const T, 4> query = {};  ///< [B,H,T,Dk]
  TensorView<const T, 4> key = {};    ///< [B,Hkv,S,Dk], Hkv divides H
  TensorView<const T, 4> value = {};  ///< [B,Hkv,S,Dv]
  Mask mask = {};
  std::optional<double> scale = std::nullopt;    ///< 1/√Dk where absent
  std::optional<double> softcap = std::nullopt;  ///< positive
  /// Broadcasts to [B,H,T,S] (extent 1 where it does).
  std::optional<TensorView<const T, 4>> bias = std::nullopt;
  std::optional<Alibi> alibi = std::nullopt;
  /// [H], a logit that takes weight and gives nothing.
  std::optional<TensorView<const T, 1>> sink = std::nullopt;
};

/// Where results go: any strides under which no element repeats, apart from every input.
template <class T>
struct AttentionOutputs {
  TensorView<T, 4> context = {};                               ///< [B,H,T,Dv]
  std::optional<TensorView<T, 4>> weights = std::nullopt;      ///< [B,H,T,S], 0 where hidden
  std::optional<TensorView<T, 3>> log_sum_exp = std::nullopt;  ///< [B,H,T], natural logarithm
};

/// Derivatives of the loss with respect to the outputs. In rows that see nothing only the log-sum-exp's is read, and
/// only where there is a sink.
template <class T>
struct AttentionOutputGradients {
  TensorView<const T, 4> context = {};                               ///< [B,H,T,Dv]
  std::optional<TensorView<const T, 4>> weights = std::nullopt;      ///< [B,H,T,S]
  std::optional<TensorView<const T, 3>> log_sum_exp = std::nullopt;  ///< [B,H,T]
};

/// Where derivatives with respect to the inputs go: overwritten, never added to.
template <class T>
struct AttentionInputGradients {
  TensorView<T, 4> query = {};  ///< [B,H,T,Dk]
  TensorView<T, 4> key = {};    ///< [B,Hkv,S,Dk], summed over the heads of a group
  TensorView<T, 4> value = {};  ///< [B,Hkv,S,Dv]
  /// The shape of the bias, summed over its broadcast axes.
  std::optional<TensorView<T, 4>> bias = std::nullopt;
  std::optional<TensorView<T, 1>> sink = std::nullopt;  ///< [H]
};

}  // namespace qkv
