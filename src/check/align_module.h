// Our side of align: the module on the inputs that a peer gets.
#pragma once

#include "check/align_case.h"
#include "qkv/io.h"

namespace qkv {

/// Runs MultiHeadAttention<T> forward and backward on the inputs in `file` (see check/peer.h) and returns every result
/// that a peer may return. T is double or float.
template <class T>
TensorFile run_module(const AlignCase& align_case, const TensorFile& file);

}  // namespace qkv
