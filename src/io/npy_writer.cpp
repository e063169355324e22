#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>

#include "io/npy.h"
#include "io/tensor_layout.h"

namespace qkv {
namespace {

std::string_view descr_of(DType dtype, const std::string& name) {
  switch (dtype) {
    case DType::Float64:
      return "<f8";
    case DType::Float32:
      return "<f4";
    case DType::Float16:
      return "<f2";
    case DType::BFloat16:
      break;
    case DType::Int64:
      return "<i8";
    case DType::Int32:
      return "<i4";
    case DType::Int16:
      return "<i2";
    case DType::Int8:
      return "|i1";
    case DType::UInt64:
      return "<u8";
    case DType::UInt32:
      return "<u4";
    case DType::UInt16:
      return "<u2";
    case DType::UInt8:
      return "|u1";
    case DType::Bool:
      return "|b1";
  }
  throw std::invalid_argument(
      fmt::format("write_tensors: {}: expected a dtype that NumPy has, got {}; write .safetensors",
                  in_quotes(name), name_of(dtype)));
}

}  // namespace

std::string npy_header(const StoredTensor& tensor, const std::string& name) {
  const std::vector<Index>& shape = tensor.shape();
  if (shape.size() > kMaxRank) {
    throw std::invalid_argument(fmt::format("write_tensors: {}: expected at most {} axes, got {}",
                                            in_quotes(name), kMaxRank, shape.size()));
  }
  const std::string dict = fmt::format(
      "{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}",
      descr_of(tensor.dtype(), name), fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  constexpr std::size_t prefix = kNpyMagic.size() + 4;
  const std::size_t size = (prefix + dict.size() + 1 + 63) / 64 * 64;
  const std::size_t length = size - prefix;
  std::string header(kNpyMagic);
  header += {'\1', '\0', static_cast<char>(length & 0xff), static_cast<char>(length >> 8)};
  header += dict;
  header.resize(size - 1, ' ');
  header += '\n';
  return header;
}

}  // namespace qkv
