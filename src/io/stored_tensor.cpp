#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "io/tensor_layout.h"
#include "qkv/io.h"

namespace qkv {
namespace {

static_assert(std::endian::native == std::endian::little,
              "stored bytes are little-endian and are read as they are");

/// The element at `position`; the bytes of a file need not be aligned.
template <class T>
T load(std::span<const std::byte> bytes, std::size_t position) {
  T value;
  std::memcpy(&value, bytes.data() + position * sizeof(T), sizeof(T));
  return value;
}

/// Calls function with a value of the C++ type that dtype stores.
template <class Function>
void visit_dtype(DType dtype, Function function) {
  switch (dtype) {
    case DType::Float64:
      return function(double{});
    case DType::Float32:
      return function(float{});
    case DType::Float16:
      return function(Float16{});
    case DType::BFloat16:
      return function(BFloat16{});
    case DType::Int64:
      return function(std::int64_t{});
    case DType::Int32:
      return function(std::int32_t{});
    case DType::Int16:
      return function(std::int16_t{});
    case DType::Int8:
      return function(std::int8_t{});
    case DType::UInt64:
      return function(std::uint64_t{});
    case DType::UInt32:
      return function(std::uint32_t{});
    case DType::UInt16:
      return function(std::uint16_t{});
    case DType::UInt8:
      return function(std::uint8_t{});
    case DType::Bool:
      return function(bool{});
  }
}

template <class To, class From>
To convert_to_floating(From value) {
  if constexpr (std::is_floating_point_v<To> && std::is_arithmetic_v<From>) {
    return static_cast<To>(value);
  } else {
    return static_cast<To>(static_cast<double>(value));
  }
}

/// The integer as a To, or nothing where it does not fit.
template <class To, class From>
std::optional<To> convert_integer(From value) {
  if constexpr (std::is_same_v<To, bool>) {
    if (value != From{0} && value != From{1}) return std::nullopt;
    return value == From{1};
  } else if constexpr (std::is_same_v<To, std::int64_t>) {
    if constexpr (std::is_same_v<From, std::uint64_t>) {
      constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
      if (value > most) return std::nullopt;
    }
    return static_cast<std::int64_t>(value);
  } else {
    const To converted = convert_to_floating<To>(value);
    if (std::isinf(static_cast<double>(converted))) return std::nullopt;
    return converted;
  }
}

template <class To, class From>
void convert(std::span<const std::byte> bytes, std::span<To> out, const std::string& name) {
  if constexpr (is_floating(dtype_of<From>) && !is_floating(dtype_of<To>)) {
    throw std::invalid_argument(
        fmt::format("StoredTensor::to: {}: expected integers or bool to read as {}, got {}",
                    in_quotes(name), name_of(dtype_of<To>), name_of(dtype_of<From>)));
  } else if constexpr (std::is_same_v<To, From>) {
    if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  } else if constexpr (is_floating(dtype_of<From>)) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = convert_to_floating<To>(load<From>(bytes, i));
    }
  } else {
    for (std::size_t i = 0; i < out.size(); ++i) {
      const From value = load<From>(bytes, i);
      const std::optional<To> converted = convert_integer<To>(value);
      if (!converted) {
        throw std::invalid_argument(
            fmt::format("StoredTensor::to: {}: expected integers that fit {}, got {} at element {}",
                        in_quotes(name), name_of(dtype_of<To>), value, i));
      }
      out[i] = *converted;
    }
  }
}

}  // namespace

StoredTensor::StoredTensor(DType dtype, std::vector<Index> shape, std::span<const std::byte> bytes,
                           std::shared_ptr<const void> owner)
    : dtype_(dtype), shape_(std::move(shape)), bytes_(bytes), owner_(std::move(owner)) {
  element_count(shape_);
  const std::optional<std::uint64_t> expected = byte_count(dtype_, shape_);
  if (!expected || *expected != bytes_.size()) {
    throw std::invalid_argument(fmt::format(
        "StoredTensor: bytes: expected {} for {} {}, got {}",
        expected ? fmt::format("{} bytes", *expected) : std::string("fewer than 2^63 bytes"),
        name_of(dtype_), to_string(shape_), bytes_.size()));
  }
  if (dtype_ != DType::Bool) return;
  if (const std::optional<std::size_t> bad = find_bad_bool(bytes_)) {
    throw std::invalid_argument(
        fmt::format("StoredTensor: bytes: expected 0 or 1 in a bool tensor, got {} at element {}",
                    static_cast<int>(bytes_[*bad]), *bad));
  }
}

template <class T, int Rank>
Tensor<T, Rank> StoredTensor::to(const std::string& name) const {
  if (shape_.size() != static_cast<std::size_t>(Rank)) {
    throw std::invalid_argument(fmt::format("StoredTensor::to: {}: expected rank {}, got shape {}",
                                            in_quotes(name), Rank, to_string(shape_)));
  }
  Extents<Rank> extents{};
  std::copy_n(shape_.begin(), Rank, extents.begin());
  Tensor<T, Rank> result(extents);
  visit_dtype(dtype_,
              [&](auto stored) { convert<T, decltype(stored)>(bytes_, result.elements(), name); });
  return result;
}

#define QKV_INSTANTIATE_TO(T)                                             \
  template Tensor<T, 0> StoredTensor::to<T, 0>(const std::string&) const; \
  template Tensor<T, 1> StoredTensor::to<T, 1>(const std::string&) const; \
  template Tensor<T, 2> StoredTensor::to<T, 2>(const std::string&) const; \
  template Tensor<T, 3> StoredTensor::to<T, 3>(const std::string&) const; \
  template Tensor<T, 4> StoredTensor::to<T, 4>(const std::string&) const; \
  template Tensor<T, 5> StoredTensor::to<T, 5>(const std::string&) const;

QKV_INSTANTIATE_TO(double)
QKV_INSTANTIATE_TO(float)
QKV_INSTANTIATE_TO(Float16)
QKV_INSTANTIATE_TO(BFloat16)
QKV_INSTANTIATE_TO(std::int64_t)
QKV_INSTANTIATE_TO(bool)

#undef QKV_INSTANTIATE_TO

const StoredTensor& TensorFile::at(const std::string& name) const {
  const auto found = tensors.find(name);
  if (found != tensors.end()) return found->second;
  constexpr std::size_t most_names = 40;
  std::vector<std::string> present;
  for (const auto& [other, tensor] : tensors) {
    if (present.size() == most_names) {
      present.push_back(fmt::format("… ({} in all)", tensors.size()));
      break;
    }
    present.push_back(in_quotes(other));
  }
  throw std::invalid_argument(fmt::format(
      "TensorFile::at: name: expected one of {}, got {}",
      present.empty() ? std::string("no tensors") : fmt::format("{}", fmt::join(present, ", ")),
      in_quotes(name)));
}

}  // namespace qkv
