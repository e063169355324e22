// The rank of a matrix of measured numbers.
#pragma once

#include "qkv/tensor.h"

namespace qkv::lab {

/// How many pivots of elimination with full pivoting are above the rounding of float32 factors: 1e-6 of the first.
Index matrix_rank(Tensor<double, 2> matrix);

}  // namespace qkv::lab
