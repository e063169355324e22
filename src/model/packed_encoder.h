// An encoder's output alone, of the tokens that are no padding.
#pragma once

#include <optional>

#include "model/encoder.h"

namespace qkv {

/// embedding [B,T,D], before the first norm; keep [B,T]. Padding gets 0. The arguments fit.
template <class T>
Tensor<T, 3> encode_packed(const EncoderOptions& options, const EncoderParameters<T>& parameters,
                           const Tensor<T, 3>& embedding,
                           const std::optional<Tensor<bool, 2>>& keep);

}  // namespace qkv
