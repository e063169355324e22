// The one place where the module calls the attention core: same arguments as the oracle, results in T.
// The module has neither sinks nor gradients of the log-sum-exp.
#pragma once

#include "qkv/attention.h"

namespace qkv {

template <class T>
void core_forward(const AttentionInputs<T>& inputs, const AttentionOutputs<T>& outputs);

/// A row of queries whose output gradients are all zero contributes nothing, even where its query is NaN
/// or infinite.
template <class T>
void core_backward(const AttentionInputs<T>& inputs,
                   const AttentionOutputGradients<T>& output_gradients,
                   const AttentionInputGradients<T>& input_gradients);

}  // namespace qkv
