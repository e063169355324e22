#include "base/overlap.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace qkv {
namespace {

/// The addresses of a view's elements, one by one.
std::multiset<const float*> addresses(const TensorView<float, 3>& view) {
  std::multiset<const float*> result;
  detail::for_each_offset(view.shape(), view.strides(),
                          [&](std::ptrdiff_t offset) { result.insert(view.data() + offset); });
  return result;
}

TEST(Overlap, SlicesOfOnePackedTensorAreApart) {
  // dq, dk, dv as slices of one [B,T,3·H·D] buffer: their address ranges meet, their elements do not.
  Tensor<float, 3> packed({2, 5, 36});
  const auto q = split_heads(packed.view().slice(2, 0, 12), 3);
  const auto k = split_heads(packed.view().slice(2, 12, 24), 3);
  const auto one_head = split_heads(packed.view().slice(2, 24, 28), 1);
  EXPECT_FALSE(overlap(footprint(q), footprint(k)));
  EXPECT_FALSE(overlap(footprint(q), footprint(one_head)));
  EXPECT_TRUE(overlap(footprint(q), footprint(split_heads(packed.view().slice(2, 8, 20), 3))));
  EXPECT_FALSE(overlaps_itself(footprint(q)));
}

TEST(Overlap, BroadcastAxesRepeatElements) {
  Tensor<float, 1> data({8});
  EXPECT_TRUE(overlaps_itself(footprint(TensorView<float, 2>(data.data(), {2, 4}, {0, 1}))));
  EXPECT_TRUE(overlaps_itself(footprint(TensorView<float, 2>(data.data(), {3, 4}, {2, 1}))));
  EXPECT_FALSE(overlaps_itself(footprint(TensorView<float, 2>(data.data(), {1, 8}, {0, 1}))));
  EXPECT_FALSE(overlaps_itself(footprint(TensorView<float, 2>(data.data(), {2, 0}, {0, 1}))));
}

TEST(Overlap, NeverMissesASharedElement) {
  std::mt19937 random(5);
  Tensor<float, 1> memory({4096});
  int apart = 0;
  const auto any_view = [&] {
    const auto pick = [&](int from, int to) {
      return static_cast<Index>(std::uniform_int_distribution<int>(from, to)(random));
    };
    const Index sign = pick(0, 3) == 0 ? -1 : 1;
    return TensorView<float, 3>(memory.data() + 2048 + pick(-30, 30),
                                {pick(0, 3), pick(1, 4), pick(1, 3)},
                                {sign * pick(0, 20), pick(0, 6), pick(0, 2)});
  };
  for (int i = 0; i < 20000; ++i) {
    const auto a = any_view();
    const auto b = any_view();
    const auto in_a = addresses(a);
    const auto in_b = addresses(b);
    bool share = false;
    for (const float* address : in_a) share = share || in_b.contains(address);
    const bool repeats = std::set(in_a.begin(), in_a.end()).size() != in_a.size();
    if (share) {
      EXPECT_TRUE(overlap(footprint(a), footprint(b)));
    }
    if (repeats) {
      EXPECT_TRUE(overlaps_itself(footprint(a)));
    }
    apart += overlap(footprint(a), footprint(b)) ? 0 : 1;
  }
  EXPECT_GT(apart, 5000);  // and is no blanket refusal
}

TEST(Overlap, ExactWhereTheStridesAreThoseOfOneTensor) {
  std::mt19937 random(6);
  Tensor<float, 3> tensor({6, 7, 8});
  for (int i = 0; i < 5000; ++i) {
    const auto any_box = [&] {
      auto view = tensor.view();
      for (int axis = 0; axis < 3; ++axis) {
        const auto extent = static_cast<int>(tensor.shape(axis));
        const int begin = std::uniform_int_distribution<int>(0, extent - 1)(random);
        const int end = std::uniform_int_distribution<int>(begin + 1, extent)(random);
        view = view.slice(axis, begin, end);
      }
      return view;
    };
    const auto a = any_box();
    const auto b = any_box();
    const auto in_b = addresses(b);
    bool share = false;
    for (const float* address : addresses(a)) share = share || in_b.contains(address);
    EXPECT_EQ(overlap(footprint(a), footprint(b)), share);
  }
}

}  // namespace
}  // namespace qkv
