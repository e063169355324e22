// The oracle: the attention formula as it is written, in float64 arithmetic whatever the storage, with the
// score matrix in memory. It is what everything else is held against; it is not what one runs.
#pragma once

#include "qkv/attention.h"

namespace qkv::reference {

/// Computes context and, where asked for, weights and log-sum-exp. Uses every core; extra memory is
/// the scores of one head, 9·T·S bytes. Throws std::invalid_argument where arguments do not fit
/// together, std::bad_alloc where memory is short; outputs are untouched then.
template <class T>
void forward(const AttentionInputs<T>& inputs, const AttentionOutputs<double>& outputs);

/// Computes the derivatives of a loss whose derivatives with respect to the outputs are given. The same
/// errors; extra memory 17·T·S bytes.
template <class T>
void backward(const AttentionInputs<T>& inputs,
              const AttentionOutputGradients<double>& output_gradients,
              const AttentionInputGradients<double>& input_gradients);

}  // namespace qkv::reference
