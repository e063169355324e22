// What enters the scores of a dump: queries and keys after QK-norm and rotary positions, values, and the variance that rounding
// gives them on the way there.
#pragma once

#include <optional>

#include "check/dump.h"
#include "check/rounding_unit.h"

namespace qkv {

/// A result and the variance that rounding gives it; same shapes.
template <int Rank>
struct Rounded {
  Tensor<double, Rank> value;
  Tensor<double, Rank> variance;
};

struct Entering {
  Rounded<4> query;  ///< [B,H,T,Dk]
  Rounded<4> key;    ///< [B,Hkv,S,Dk]
  Rounded<4> value;  ///< [B,Hkv,S,Dv]
};

/// Of the tensors that the dump holds, or that its projections make.
Entering entering(const Dump& dump, const Arithmetic& arithmetic);

/// The arguments of the oracle; they read `entering` and `dump`.
AttentionInputs<double> oracle_inputs(const Dump& dump, const Entering& entering);

/// q, k and v as x and the weights make them, before norm and rotary positions, where the dump has these.
std::optional<Entering> projected_inputs(const Dump& dump, const Arithmetic& arithmetic);

/// `rows`·weightᵀ + bias and its variance; `rows` are [N,D], weight [R,D]. An empty variance of the rows means exact ones.
Rounded<2> projected(const TensorView<const double, 2>& rows,
                     const std::optional<TensorView<const double, 2>>& rows_variance,
                     const Tensor<double, 2>& weight, const std::optional<Tensor<double, 1>>& bias,
                     const Arithmetic& arithmetic, DType ran_in);

}  // namespace qkv
