// Reading and writing tensors: safetensors, .npy and .npz.
//
// A header that is truncated, overlaps, lies about sizes or asks for more than the file holds is a
// FileError that names the byte offset; nothing is allocated from a size that the file cannot back.
// In an .npz the offset counts bytes of the unpacked member, which FileError::path() then names too.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "qkv/dtype.h"
#include "qkv/error.h"
#include "qkv/tensor.h"

namespace qkv {

/// A tensor of any rank as a file holds it: row-major bytes, little-endian, of any alignment. The bytes
/// stay valid as long as any copy of the StoredTensor lives. They may lie in a memory-mapped file: a
/// program that shortens or overwrites the file meanwhile pulls them away (SIGBUS) or changes them;
/// write_tensors is safe, for it replaces the file and leaves the old one to its readers.
class StoredTensor {
 public:
  /// An empty float64 tensor of shape [0].
  StoredTensor() = default;
  /// `owner` keeps `bytes` alive. Throws std::invalid_argument unless bytes.size() equals the product
  /// of the shape times size_of(dtype) and every byte of a Bool tensor is 0 or 1.
  StoredTensor(DType dtype, std::vector<Index> shape, std::span<const std::byte> bytes,
               std::shared_ptr<const void> owner);

  DType dtype() const noexcept { return dtype_; }
  const std::vector<Index>& shape() const noexcept { return shape_; }
  std::span<const std::byte> bytes() const noexcept { return bytes_; }

  /// A copy with every element converted to T (double, float, Float16, BFloat16, std::int64_t or bool)
  /// and the rank (0 to 5) checked. `name` is the tensor's name for the error message. Conversions round
  /// to nearest; a float too large for T becomes infinite; elements that T stores already keep their
  /// bits. Throws std::invalid_argument where the rank differs, where a floating-point tensor is read
  /// as int64 or bool, or where an integer does not fit (into bool fit 0 and 1).
  template <class T, int Rank>
  Tensor<T, Rank> to(const std::string& name) const;

 private:
  DType dtype_ = DType::Float64;
  std::vector<Index> shape_ = {0};
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> owner_;
};

/// Copies a view into a StoredTensor of the same dtype.
template <class T, int Rank>
StoredTensor store(const TensorView<T, Rank>& view) {
  using Element = std::remove_const_t<T>;
  const auto copy = std::make_shared<const Tensor<Element, Rank>>(contiguous_copy(view));
  return {dtype_of<Element>,
          {view.shape().begin(), view.shape().end()},
          std::as_bytes(copy->elements()),
          copy};
}

/// Named tensors, and text metadata where the format has it (safetensors).
struct TensorFile {
  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, std::string> metadata;

  bool contains(const std::string& name) const { return tensors.contains(name); }
  /// Throws std::invalid_argument that names the missing tensor and those present.
  const StoredTensor& at(const std::string& name) const;
};

/// Reads by content, not by the name's ending: safetensors, .npz, or .npy (one tensor, named "array").
/// Safetensors and .npy in C order and little-endian are mapped into memory, not copied. bfloat16 in
/// .npy is what ml_dtypes writes: '<V2'. Throws FileError: missing, not a regular file, malformed.
TensorFile read_tensors(const std::string& path);

/// Writes by the name's ending (.safetensors, .npz, .npy): to a temporary file beside it, renamed when
/// whole, so that a failure leaves nothing half-written. Equal content gives equal bytes. A .npy keeps
/// no name. Throws std::invalid_argument where the format cannot hold the content (metadata or bfloat16
/// in .npz and .npy, several tensors in .npy), FileError where writing fails or the path is a pipe,
/// socket or device. A symbolic link to a file is followed.
void write_tensors(const std::string& path, const TensorFile& file);

}  // namespace qkv
