#include "qkv/dtype.h"

#include <bit>
#include <cmath>
#include <limits>

namespace qkv {
namespace {

/// A binary floating-point format of 16 bits: sign, exponent, fraction.
struct Format {
  int exponent_bits;
  int fraction_bits;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  std::uint16_t infinity() const {
    return static_cast<std::uint16_t>(((1 << exponent_bits) - 1) << fraction_bits);
  }
  /// Exponent of the spacing of subnormal numbers.
  int subnormal_exponent() const { return 1 - bias() - fraction_bits; }
};

constexpr Format kBinary16{5, 10};
constexpr Format kBFloat16{8, 7};

// Rounds once, from float64: converting through float32 first would round twice.
std::uint16_t encode(double value, Format format) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) {
    const auto quiet = static_cast<std::uint16_t>(1 << (format.fraction_bits - 1));
    return static_cast<std::uint16_t>(sign | format.infinity() | quiet);
  }
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return static_cast<std::uint16_t>(sign | format.infinity());
  if (magnitude == 0) return sign;

  int exponent = std::ilogb(magnitude) - format.fraction_bits;  // of the last fraction bit
  if (exponent < format.subnormal_exponent()) exponent = format.subnormal_exponent();
  // In units of the last bit; exact but for the rounding to nearest even that rint does.
  const double units = std::rint(std::scalbn(magnitude, -exponent));
  // The fraction and the exponent field add up to the encoding: a carry out of the fraction moves to
  // the next exponent, and past the largest one to infinity.
  const double field =
      units + std::ldexp(exponent - format.subnormal_exponent(), format.fraction_bits);
  const double infinity = format.infinity();
  return static_cast<std::uint16_t>(
      sign | static_cast<std::uint16_t>(field < infinity ? field : infinity));
}

double decode(std::uint16_t bits, Format format) {
  const int fraction_mask = (1 << format.fraction_bits) - 1;
  const int fraction = bits & fraction_mask;
  const int exponent = (bits & 0x7FFF) >> format.fraction_bits;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << format.exponent_bits) - 1) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::copysign(std::numeric_limits<double>::quiet_NaN(), sign);
  }
  if (exponent == 0) return sign * std::scalbn(fraction, format.subnormal_exponent());
  return sign *
         std::scalbn(fraction + fraction_mask + 1, exponent - 1 + format.subnormal_exponent());
}

}  // namespace

Float16::Float16(double value) : bits(encode(value, kBinary16)) {}
Float16::operator double() const { return decode(bits, kBinary16); }
Float16 Float16::from_bits(std::uint16_t bits) {
  Float16 result;
  result.bits = bits;
  return result;
}

BFloat16::BFloat16(double value) : bits(encode(value, kBFloat16)) {}
BFloat16::operator double() const {
  return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
}
BFloat16 BFloat16::from_bits(std::uint16_t bits) {
  BFloat16 result;
  result.bits = bits;
  return result;
}

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::Float64:
    case DType::Int64:
    case DType::UInt64:
      return 8;
    case DType::Float32:
    case DType::Int32:
    case DType::UInt32:
      return 4;
    case DType::Float16:
    case DType::BFloat16:
    case DType::Int16:
    case DType::UInt16:
      return 2;
    case DType::Int8:
    case DType::UInt8:
    case DType::Bool:
      return 1;
  }
  return 0;
}

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return "float64";
    case DType::Float32:
      return "float32";
    case DType::Float16:
      return "float16";
    case DType::BFloat16:
      return "bfloat16";
    case DType::Int64:
      return "int64";
    case DType::Int32:
      return "int32";
    case DType::Int16:
      return "int16";
    case DType::Int8:
      return "int8";
    case DType::UInt64:
      return "uint64";
    case DType::UInt32:
      return "uint32";
    case DType::UInt16:
      return "uint16";
    case DType::UInt8:
      return "uint8";
    case DType::Bool:
      return "bool";
  }
  return "unknown";
}

}  // namespace qkv
