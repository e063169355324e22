// Storage types. Arithmetic happens in float64 (the oracle) or natively in float32 and float64;
// float16 and bfloat16 are storage formats only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace qkv {

/// IEEE 754 binary16: 1 sign, 5 exponent, 10 fraction bits. Converts with round-to-nearest-even; values
/// beyond 65,504 become infinite, a NaN stays a NaN.
struct Float16 {
  std::uint16_t bits = 0;

  Float16() = default;
  explicit Float16(double value);
  explicit operator double() const;
  static Float16 from_bits(std::uint16_t bits);
};

/// bfloat16: the upper half of a binary32. Converts with round-to-nearest-even; a NaN stays a NaN.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(double value);
  explicit operator double() const;
  static BFloat16 from_bits(std::uint16_t bits);
};

enum class DType : std::uint8_t {
  Float64,
  Float32,
  Float16,
  BFloat16,
  Int64,
  Int32,
  Int16,
  Int8,
  UInt64,
  UInt32,
  UInt16,
  UInt8,
  Bool,
};

/// Bytes of one element.
std::size_t size_of(DType dtype);

/// Whether it is one of the four floating-point types.
constexpr bool is_floating(DType dtype) noexcept { return dtype <= DType::BFloat16; }

/// "float64", "bfloat16", "int32", "bool", …
std::string_view name_of(DType dtype);

/// The DType that stores a T. Defined for the C++ types named in DType (bool for Bool).
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::Float64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::Float32;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::Float16;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::BFloat16;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::Int64;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::Int32;
};
template <>
struct DTypeOf<std::int16_t> {
  static constexpr DType value = DType::Int16;
};
template <>
struct DTypeOf<std::int8_t> {
  static constexpr DType value = DType::Int8;
};
template <>
struct DTypeOf<std::uint64_t> {
  static constexpr DType value = DType::UInt64;
};
template <>
struct DTypeOf<std::uint32_t> {
  static constexpr DType value = DType::UInt32;
};
template <>
struct DTypeOf<std::uint16_t> {
  static constexpr DType value = DType::UInt16;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::UInt8;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::Bool;
};

template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

}  // namespace qkv
