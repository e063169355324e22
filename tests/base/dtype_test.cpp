#include "qkv/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace qkv {
namespace {

struct Encoding {
  double value;
  std::uint16_t bits;
};

TEST(Float16, KnownEncodings) {
  // IEEE 754-2008, binary16: largest, smallest normal, subnormals, and the nearest numbers to 0.1 and π.
  const Encoding known[] = {{1.0, 0x3C00},     {-2.0, 0xC000},    {65504.0, 0x7BFF},
                            {0x1p-14, 0x0400}, {0x1p-24, 0x0001}, {0x1p-14 - 0x1p-24, 0x03FF},
                            {0.1, 0x2E66},     {M_PI, 0x4248},    {0.0, 0x0000},
                            {-0.0, 0x8000},    {1.0 / 3, 0x3555}, {-INFINITY, 0xFC00}};
  for (const auto& [value, bits] : known) EXPECT_EQ(Float16(value).bits, bits) << value;
}

TEST(Float16, RoundsTiesToEvenAndOnce) {
  EXPECT_EQ(Float16(2049.0).bits, Float16(2048.0).bits);
  EXPECT_EQ(Float16(2051.0).bits, Float16(2052.0).bits);
  EXPECT_EQ(Float16(65519.9).bits, 0x7BFF);
  EXPECT_EQ(Float16(65520.0).bits, 0x7C00);  // half way to the next power rounds to infinity
  EXPECT_EQ(Float16(0x1p-25).bits, 0);       // half of the smallest number: the even neighbour is 0
  EXPECT_EQ(Float16(std::nextafter(0x1p-25, 1)).bits, 1);
  EXPECT_EQ(Float16(1e300).bits, 0x7C00);
  EXPECT_EQ(Float16(1e-300).bits, 0);
  // Rounding to float32 first would lose the excess over the tie and round down.
  EXPECT_EQ(Float16(1.0 + 0x1p-11 + 0x1p-40).bits, 0x3C01);
}

TEST(BFloat16, KnownEncodings) {
  const Encoding known[] = {{1.0, 0x3F80},  {-2.0, 0xC000},  {M_PI, 0x4049},
                            {0.1, 0x3DCD},  {0x1p-133, 1},   {3.3895313892515355e38, 0x7F7F},
                            {1e39, 0x7F80}, {256.5, 0x4380}, {-INFINITY, 0xFF80}};
  for (const auto& [value, bits] : known) EXPECT_EQ(BFloat16(value).bits, bits) << value;
  EXPECT_EQ(BFloat16(257.0).bits, BFloat16(256.0).bits);
  EXPECT_EQ(BFloat16(259.0).bits, BFloat16(260.0).bits);
}

template <class Half>
void expect_every_encoding_survives() {
  for (int bits = 0; bits <= 0xFFFF; ++bits) {
    const Half half = Half::from_bits(static_cast<std::uint16_t>(bits));
    const double value = static_cast<double>(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(static_cast<double>(Half(value))));
    } else {
      ASSERT_EQ(Half(value).bits, bits);
    }
  }
}

TEST(Float16, EveryEncodingSurvivesARoundTrip) { expect_every_encoding_survives<Float16>(); }
TEST(BFloat16, EveryEncodingSurvivesARoundTrip) { expect_every_encoding_survives<BFloat16>(); }

template <class Half>
void expect_midpoints_round_to_even(int largest_finite) {
  for (int bits = 0; bits < largest_finite; ++bits) {
    const auto lower = static_cast<double>(Half::from_bits(static_cast<std::uint16_t>(bits)));
    const auto upper = static_cast<double>(Half::from_bits(static_cast<std::uint16_t>(bits + 1)));
    const double middle = (lower + upper) / 2;
    ASSERT_EQ(Half(middle).bits, bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(Half(std::nextafter(middle, 0)).bits, bits);
    ASSERT_EQ(Half(std::nextafter(middle, INFINITY)).bits, bits + 1);
    ASSERT_EQ(Half(-middle).bits, 0x8000 | (bits % 2 == 0 ? bits : bits + 1));
  }
}

TEST(Float16, MidpointsRoundToEven) { expect_midpoints_round_to_even<Float16>(0x7BFF); }
TEST(BFloat16, MidpointsRoundToEven) { expect_midpoints_round_to_even<BFloat16>(0x7F7F); }

TEST(DType, SizesAndNames) {
  EXPECT_EQ(size_of(DType::BFloat16), 2U);
  EXPECT_EQ(size_of(DType::Bool), 1U);
  EXPECT_EQ(name_of(DType::Float16), "float16");
  EXPECT_EQ(dtype_of<std::int32_t>, DType::Int32);
}

}  // namespace
}  // namespace qkv
