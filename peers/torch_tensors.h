// Tensors between this library and PyTorch.
#pragma once

#include <memory>
#include <stdexcept>

#include <torch/torch.h>

#include "qkv/io.h"

namespace qkv {

inline torch::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return torch::kFloat64;
    case DType::Float32:
      return torch::kFloat32;
    case DType::Float16:
      return torch::kFloat16;
    case DType::BFloat16:
      return torch::kBFloat16;
    case DType::Bool:
      return torch::kBool;
    default:
      throw std::invalid_argument("torch peer: dtype: expected a floating-point type or bool");
  }
}

/// The same memory, which must outlive the tensor and is not to be written.
inline torch::Tensor borrowed(const StoredTensor& stored) {
  // from_blob wants a pointer that it could write through.
  auto* data = const_cast<std::byte*>(stored.bytes().data());
  return torch::from_blob(data, stored.shape(), scalar_type(stored.dtype()));
}

inline StoredTensor stored(const torch::Tensor& tensor) {
  torch::Tensor wide = tensor.detach();
  if (wide.scalar_type() != torch::kFloat64) wide = wide.to(torch::kFloat32);
  const auto dense = std::make_shared<const torch::Tensor>(wide.contiguous());
  const DType dtype = dense->scalar_type() == torch::kFloat64 ? DType::Float64 : DType::Float32;
  const auto* data = static_cast<const std::byte*>(dense->const_data_ptr());
  return {dtype, dense->sizes().vec(), {data, dense->nbytes()}, dense};
}

}  // namespace qkv
