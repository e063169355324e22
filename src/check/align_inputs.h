// Numbers for the cases of align, as PyTorch would be given them (see check/peer.h).
#pragma once

#include "check/align_case.h"
#include "qkv/dtype.h"
#include "qkv/io.h"

namespace qkv {

/// Draws inputs, parameters, masks and gradients. The numbers depend on the case only: float32 gets those
/// of float64, rounded. Throws std::invalid_argument on another dtype.
TensorFile draw_inputs(const AlignCase& align_case, DType dtype);

/// The same numbers in float64 storage; what is not floating point stays.
TensorFile widened(const TensorFile& inputs);

}  // namespace qkv
