#include "qkv/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace qkv {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

using List = std::vector<Index>;

TEST(ViewStrides, AgreeWithPyTorch) {
  // Expected values: the strides of torch.as_strided(…, shape, strides).view(target), or its refusal.
  struct Case {
    List shape, strides, target;
    std::optional<List> expected;
  };
  const Case cases[] = {
      {{2, 4, 5, 3}, {60, 3, 12, 1}, {2, 5, 12}, std::nullopt},  // heads before tokens
      {{2, 5, 4, 3}, {60, 12, 3, 1}, {2, 5, 12}, List{60, 12, 1}},
      {{2, 5, 12}, {60, 12, 1}, {2, 5, 4, 3}, List{60, 12, 3, 1}},
      {{2, 3, 4}, {12, 4, 1}, {24}, List{1}},
      {{2, 3, 4}, {24, 8, 2}, {6, 4}, List{8, 2}},
      {{2, 3, 4}, {24, 8, 2}, {24}, List{2}},
      {{2, 3, 4}, {0, 4, 1}, {6, 4}, std::nullopt},
      {{2, 3, 4}, {0, 4, 1}, {2, 12}, List{0, 1}},
      {{1, 3, 4}, {7, 4, 1}, {12}, List{1}},
      {{3, 1, 4}, {4, 9, 1}, {12, 1}, List{1, 1}},
      {{4, 3}, {1, 4}, {12}, std::nullopt},
      {{4, 3}, {1, 4}, {2, 2, 3}, List{2, 1, 4}},
      {{1, 1}, {5, 9}, {1}, List{9}},
      {{2, 3}, {3, 1}, {5}, std::nullopt},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(view_strides(c.shape, c.strides, c.target), c.expected)
        << to_string(c.shape) << " " << to_string(c.strides) << " " << to_string(c.target);
  }
}

TEST(Heads, SplitIsAViewAndMergeUndoesIt) {
  Tensor<double, 3> merged({2, 3, 8});
  std::iota(merged.elements().begin(), merged.elements().end(), 0.0);
  const TensorView<double, 4> split = split_heads(merged.view(), 4);
  EXPECT_THAT(split.shape(), ElementsAre(2, 4, 3, 2));
  EXPECT_THAT(split.strides(), ElementsAre(24, 2, 8, 1));
  EXPECT_EQ(&split(1, 3, 2, 1), &merged(1, 2, 7));  // column h·D + d is element d of head h
  EXPECT_FALSE(split.contiguous());

  const Tensor<double, 3> back = merge_heads(split);
  EXPECT_TRUE(
      std::equal(back.elements().begin(), back.elements().end(), merged.elements().begin()));
  EXPECT_THAT([&] { split_heads(merged.view(), 3); },
              ThrowsMessage<std::invalid_argument>(HasSubstr(
                  "split_heads: heads: expected a positive divisor of the width 8, got 3")));
}

TEST(Heads, AViewCannotMergeWhatACopyCan) {
  const Tensor<double, 3> merged({2, 3, 8});
  const auto token_major = split_heads(merged.view(), 4);
  EXPECT_THAT(
      ([&] {
        view_as<3>(token_major, {2, 3, 8});
      }),
      ThrowsMessage<std::invalid_argument>(HasSubstr(
          "strides [24, 2, 8, 1] of [2, 4, 3, 2] can address without a copy, got [2, 3, 8]")));
  const Tensor<double, 4> copy = contiguous_copy(token_major.transposed(1, 2));
  EXPECT_THAT((view_as<3>(copy.view(), {2, 3, 8}).strides()), ElementsAre(24, 8, 1));
}

TEST(TensorView, SliceAndTransposeShareMemory) {
  Tensor<int, 2> matrix({3, 4});
  const auto middle = matrix.view().slice(1, 1, 3).transposed(0, 1);
  EXPECT_THAT(middle.shape(), ElementsAre(2, 3));
  EXPECT_EQ(&middle(1, 2), &matrix(2, 2));
  EXPECT_THAT([&] { matrix.view().slice(1, 2, 5); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("got axis 1, range [2, 5)")));
  EXPECT_EQ(matrix.view().slice(0, 3, 3).shape(0), 0);
}

TEST(Tensor, RefusesSizesThatOverflow) {
  EXPECT_THAT(
      ([] {
        Tensor<char, 3>({Index{1} << 31, Index{1} << 31, 4});
      }),
      ThrowsMessage<std::invalid_argument>(HasSubstr("expected a product of extents below 2^63")));
  EXPECT_THAT(([] {
                Tensor<char, 2>({3, -1});
              }),
              ThrowsMessage<std::invalid_argument>(
                  HasSubstr("expected extents of 0 or more, got [3, -1]")));
  EXPECT_THROW((Tensor<double, 2>({Index{1} << 40, Index{1} << 20})), std::bad_alloc);
}

TEST(Tensor, CopiesAndMovesElements) {
  Tensor<bool, 1> flags({3});
  flags(1) = true;
  Tensor<bool, 1> copy = flags;
  flags(1) = false;
  EXPECT_TRUE(copy(1));
  const Tensor<bool, 1> moved = std::move(copy);
  EXPECT_TRUE(moved(1));
  EXPECT_EQ((Tensor<float, 0>(Extents<0>{}).elements().size()), 1U);  // rank 0 is one number
  EXPECT_EQ((Tensor<float, 2>({0, 5}).elements().size()), 0U);
}

TEST(Copies, OfEmptyTensorsTakeNoTime) {
  const TensorView<const float, 4> empty(nullptr, {Index{1} << 40, 1, 1, 0}, {0, 0, 0, 1});
  EXPECT_EQ(contiguous_copy(empty).shape(), empty.shape());
  EXPECT_THAT(merge_heads(empty).shape(), ElementsAre(Index{1} << 40, 1, 0));
}

TEST(Contiguous, ExtentsOfOneMayHaveAnyStride) {
  EXPECT_TRUE(is_contiguous(List{1, 3}, List{99, 1}));
  EXPECT_FALSE(is_contiguous(List{2, 3}, List{4, 1}));
  EXPECT_TRUE(is_contiguous(List{0, 3}, List{4, 7}));
}

}  // namespace
}  // namespace qkv
