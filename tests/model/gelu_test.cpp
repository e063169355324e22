// The GELU of every SIMD target against the definition in float64.
#include "model/gelu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "kernels/kernel_table.h"

namespace qkv {
namespace {

double below(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

double slope_of(double x) {
  return below(x) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
}

/// From −20 to 20, and around 0 more closely.
std::vector<float> points() {
  std::vector<float> result{0.0F, -0.0F};
  for (int i = -200000; i <= 200000; ++i) result.push_back(static_cast<float>(i) * 1e-4F);
  for (float x = 1e-30F; x < 1; x *= 1.7F) {
    result.push_back(x);
    result.push_back(-x);
  }
  return result;
}

TEST(GeluTest, EveryTargetIsAsNearAsItPromises) {
  const std::vector<float> x = points();
  for (const kernels::Target& target : kernels::targets()) {
    std::vector<float> value = x;
    std::vector<float> slope(x.size());
    target.gelu(value.data(), slope.data(), static_cast<std::ptrdiff_t>(x.size()));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double exact = static_cast<double>(x[i]);
      const double tolerance = 4 * 0x1p-24 * std::max(1.0, std::abs(exact));
      ASSERT_NEAR(static_cast<double>(value[i]), exact * below(exact), tolerance) << target.name;
      ASSERT_NEAR(static_cast<double>(slope[i]), slope_of(exact), tolerance)
          << target.name << " at " << exact;
    }
  }
}

TEST(GeluTest, AnElementsBitsDoNotDependOnItsPlace) {
  const std::vector<float> x{-3.3F, -1.1F, -0.2F, 0.4F, 0.9F, 2.7F, 5.5F, -7.7F, 0.1F};
  for (const kernels::Target& target : kernels::targets()) {
    std::vector<float> row;
    for (int i = 0; i < 5; ++i) row.insert(row.end(), x.begin(), x.end());
    std::vector<float> slopes(row.size());
    target.gelu(row.data(), slopes.data(), static_cast<std::ptrdiff_t>(row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) {
      float alone = x[i % x.size()];
      target.gelu(&alone, nullptr, 1);
      ASSERT_EQ(row[i], alone) << target.name;
      ASSERT_EQ(slopes[i], slopes[i % x.size()]) << target.name;
    }
  }
}

TEST(GeluTest, FarAwayItIsTheIdentityOrNothing) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const kernels::Target& target : kernels::targets()) {
    std::vector<float> x{1e30F, -1e30F, kInfinity, std::numeric_limits<float>::quiet_NaN(), 30.0F};
    std::vector<float> slope(x.size());
    target.gelu(x.data(), slope.data(), static_cast<std::ptrdiff_t>(x.size()));
    EXPECT_EQ(x[0], 1e30F);
    EXPECT_EQ(x[1], 0.0F);
    EXPECT_EQ(x[2], kInfinity);
    EXPECT_TRUE(std::isnan(x[3]));
    EXPECT_EQ(x[4], 30.0F);
    EXPECT_EQ(slope[0], 1.0F);
    EXPECT_EQ(slope[1], 0.0F);
  }
}

TEST(GeluTest, WithoutSlopesTheBitsAreTheSame) {
  Tensor<double, 3> x({3, 5, 700});
  for (std::size_t i = 0; i < x.elements().size(); ++i) {
    x.elements()[i] = 1e-3 * static_cast<double>(i) - 5;
  }
  Tensor<double, 3> alone = x;
  Tensor<double, 3> slope(x.shape());
  gelu(x, slope);
  gelu(alone);
  EXPECT_THAT(alone.elements(), testing::ElementsAreArray(x.elements()));
}

}  // namespace
}  // namespace qkv
