// The exponential of the softmax, over its whole range and on every SIMD target, against a wider type.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/kernel_table.h"

namespace qkv {
namespace {

using kernels::kSegmentKeys;

/// 2^x by the kernel: the weights of one query 1 of width 1 against keys x, less a maximum of 0 and over a sum of 1.
template <class T>
class Exponential {
 public:
  explicit Exponential(const kernels::Target& target) : kernels_(kernels::table_of<T>(target)) {}

  void operator()(const std::vector<T>& x, std::vector<T>& powers) {
    powers.clear();
    for (std::size_t first = 0; first < x.size(); first += kSegmentKeys) {
      const std::size_t count = std::min<std::size_t>(kSegmentKeys, x.size() - first);
      std::copy_n(x.data() + first, count, keys_);
      kernels::Block<T> block;
      block.rows = 1;
      block.depth = 1;
      block.query = query_;
      block.keys = keys_;
      block.visibility.end = kSegmentKeys;
      block.scores = scores_;
      const T max = 0;
      const T sum = 1;
      kernels_.weigh(block, &max, &sum);
      powers.insert(powers.end(), scores_, scores_ + count);
    }
  }

 private:
  const kernels::KernelTable<T>& kernels_;
  alignas(64) T query_[kernels::kMostBlockRows] = {1};
  alignas(64) T keys_[kSegmentKeys] = {};
  alignas(64) T scores_[kernels::kMostBlockRows * kernels::kScoreStride] = {};
};

template <class T>
using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

/// Numbers from −0 down to `lowest`, `step` apart in their order, and those around every whole and half number.
template <class T>
std::vector<T> arguments(T lowest, Bits<T> step) {
  std::vector<T> result;
  const Bits<T> last = std::bit_cast<Bits<T>>(lowest);
  for (Bits<T> bits = std::bit_cast<Bits<T>>(T{-0.0}); bits <= last; bits += step) {
    result.push_back(std::bit_cast<T>(bits));
  }
  for (T x = lowest; x <= 0; x += T{0.5}) {
    T near = std::min<T>(x + 32 * std::numeric_limits<T>::epsilon() * std::fabs(x), T{0});
    for (int i = 0; i < 64 && near >= lowest; ++i) {
      result.push_back(near);
      near = std::nextafter(near, lowest - 1);
    }
  }
  return result;
}

/// The largest error in units of the last place of the exact power; what is below the normal numbers must be 0.
template <class T>
double largest_error(const kernels::Target& target, T smallest, Bits<T> step) {
  using Wide = std::conditional_t<sizeof(T) == 4, double, long double>;
  const std::vector<T> x = arguments<T>(smallest - 1, step);
  std::vector<T> powers;
  Exponential<T> exponential(target);
  exponential(x, powers);
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] < smallest) {
      EXPECT_EQ(powers[i], 0) << x[i];
      continue;
    }
    const Wide exact = std::exp2(static_cast<Wide>(x[i]));
    const Wide unit =
        std::scalbn(Wide{1}, std::ilogb(exact) - (std::numeric_limits<T>::digits - 1));
    largest = std::max(largest, static_cast<double>(std::fabs(powers[i] - exact) / unit));
  }
  return largest;
}

class ExponentialError : public testing::TestWithParam<std::size_t> {
 protected:
  const kernels::Target& target_ = kernels::targets()[GetParam()];
};

INSTANTIATE_TEST_SUITE_P(Simd, ExponentialError,
                         testing::Range(std::size_t{0}, kernels::targets().size()),
                         [](const auto& target) {
                           return std::string(kernels::targets()[target.param].name);
                         });

TEST_P(ExponentialError, IsWhatIsDocumented) {
  const double in_float32 = largest_error<float>(target_, -126, 1009);
  const double in_float64 = largest_error<double>(target_, -1022, 9'007'199'254'743);
  fmt::print("largest error of the exponential: {:.3f} ULP in float32, {:.3f} ULP in float64\n",
             in_float32, in_float64);
  EXPECT_LE(in_float32, 2.3);
  EXPECT_LE(in_float64, 1.2);
}

template <class T>
void hold_special_values(const kernels::Target& target) {
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  std::vector<T> powers;
  Exponential<T> exponential(target);
  exponential({0, T{-0.0}, -1, -7, -kInfinity, std::numeric_limits<T>::lowest(),
               std::numeric_limits<T>::quiet_NaN()},
              powers);
  EXPECT_EQ(powers[0], 1);
  EXPECT_EQ(powers[1], 1);
  EXPECT_EQ(powers[2], T{0.5});
  EXPECT_EQ(powers[3], T{0x1p-7});
  EXPECT_EQ(powers[4], 0);
  EXPECT_EQ(powers[5], 0);
  EXPECT_TRUE(std::isnan(powers[6]));
}

TEST_P(ExponentialError, IsNoneAtWholeNumbersAndNaNStaysNaN) {
  hold_special_values<float>(target_);
  hold_special_values<double>(target_);
}

}  // namespace
}  // namespace qkv
