// Reading and writing tensors: safetensors, .npy and .npz.
//
// A header that is truncated, overlaps, lies about sizes or asks for more than the file holds is a
// FileError that names the byte offset; nothing is allocated from a size that the file cannot back.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "qkv/dtype.h"
#include "qkv/error.h"
#include "qkv/tensor.h"

namespace qkv {

/// A tensor of any rank as a file holds it: row-major bytes, little-endian. The bytes stay valid as long
/// as any copy of the StoredTensor lives (they may lie in a memory-mapped file).
class StoredTensor {
 public:
  StoredTensor() = default;
  /// `owner` keeps `bytes` alive; bytes.size() must equal the product of the shape times size_of(dtype).
  StoredTensor(DType dtype, std::vector<Index> shape, std::span<const std::byte> bytes,
               std::shared_ptr<const void> owner);

  DType dtype() const noexcept { return dtype_; }
  const std::vector<Index>& shape() const noexcept { return shape_; }
  std::span<const std::byte> bytes() const noexcept { return bytes_; }

  /// A copy with every element converted to T (double, float, Float16, BFloat16, std::int64_t or bool)
  /// and the rank checked. `name` is the tensor's name for the error message. Throws
  /// std::invalid_argument where the rank differs, where a floating-point tensor is read as int64 or bool,
  /// or where an integer does not fit.
  template <class T, int Rank>
  Tensor<T, Rank> to(const std::string& name) const;

 private:
  DType dtype_ = DType::Float64;
  std::vector<Index> shape_;
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> owner_;
};

/// Copies a view into a StoredTensor of the same dtype.
template <class T, int Rank>
StoredTensor store(const TensorView<T, Rank>& view);

/// Named tensors, and text metadata where the format has it (safetensors).
struct TensorFile {
  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, std::string> metadata;

  bool contains(const std::string& name) const { return tensors.contains(name); }
  /// Throws std::invalid_argument that names the missing tensor and those present.
  const StoredTensor& at(const std::string& name) const;
};

/// Reads by content, not by the name's ending: safetensors, .npz, or .npy (one tensor, named "array").
TensorFile read_tensors(const std::string& path);

/// Writes by the name's ending (.safetensors, .npz, .npy): to a temporary file beside it, renamed when
/// whole, so that a failure leaves nothing half-written. Throws std::invalid_argument where the format
/// cannot hold the content (metadata in .npz, several tensors in .npy), FileError where writing fails.
void write_tensors(const std::string& path, const TensorFile& file);

}  // namespace qkv
