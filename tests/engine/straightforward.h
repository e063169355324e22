// Attention as one would first write it, in the precision of its storage: what the engine's rounding is measured by.
#pragma once

#include "tests/reference/run.h"

namespace qkv::cases {

/// The oracle's formula, row by row, with plain sums in T. T is float or double.
template <class T>
Outputs straightforward_forward(const AttentionInputs<T>& inputs);

/// The derivatives by the chain rule, with plain sums in T.
template <class T>
Gradients straightforward_backward(const AttentionInputs<T>& inputs,
                                   const AttentionOutputGradients<T>& upstream);

}  // namespace qkv::cases
