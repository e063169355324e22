#include "qkv/mask.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace qkv {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

/// The visible cells of one head as a picture: '#' visible, '.' hidden, rows are queries.
std::string draw(const Mask& mask, const MaskShape& shape, Index b = 0, Index h = 0) {
  const BoundMask bound = mask.bind("test", shape);
  std::string picture;
  for (Index t = 0; t < shape.queries; ++t) {
    for (Index s = 0; s < shape.keys; ++s) picture += bound.visible(b, h, t, s) ? '#' : '.';
    picture += '\n';
  }
  return picture;
}

template <int Rank>
Tensor<bool, Rank> flags(const Extents<Rank>& shape, const std::string& picture) {
  Tensor<bool, Rank> result(shape);
  for (std::size_t i = 0; i < picture.size(); ++i) result.elements()[i] = picture[i] == '#';
  return result;
}

TEST(Mask, CausalNamesItsCorner) {
  EXPECT_EQ(draw(Mask::causal(), {1, 1, 3, 3}),
            "#..\n"
            "##.\n"
            "###\n");
  EXPECT_EQ(draw(Mask::causal(Corner::top_left()), {1, 1, 2, 4}),
            "#...\n"
            "##..\n");
  EXPECT_EQ(draw(Mask::causal(Corner::bottom_right()), {1, 1, 2, 4}),
            "###.\n"
            "####\n");
  EXPECT_EQ(draw(Mask::causal(Corner::bottom_right()), {1, 1, 4, 2}),
            "..\n"
            "..\n"
            "#.\n"
            "##\n");
  const Mask per_sample = Mask::causal(Corner::at({0, 2}));
  EXPECT_EQ(draw(per_sample, {2, 1, 1, 4}, 0), "#...\n");
  EXPECT_EQ(draw(per_sample, {2, 1, 1, 4}, 1), "###.\n");
}

TEST(Mask, PrefixIsAUnionWithTheCausalRule) {
  EXPECT_EQ(draw(Mask::prefix_causal({2}), {1, 1, 4, 4}),
            "##..\n"
            "##..\n"
            "###.\n"
            "####\n");
}

TEST(Mask, WindowSidesAreInclusive) {
  EXPECT_EQ(draw(Mask::sliding_window({.left = 1, .right = 0}), {1, 1, 4, 4}),
            "#...\n"
            "##..\n"
            ".##.\n"
            "..##\n");
  EXPECT_EQ(draw(Mask::sliding_window({.left = 0, .right = 1, .corner = Corner::bottom_right()}),
                 {1, 1, 2, 4}),
            "..##\n"
            "...#\n");
  EXPECT_EQ(draw(Mask::sliding_window({.left = std::nullopt, .right = 1}), {1, 1, 3, 3}),
            "##.\n"
            "###\n"
            "###\n");
  const Index huge = std::numeric_limits<Index>::max();
  EXPECT_EQ(draw(Mask::sliding_window({.left = huge, .right = huge}), {1, 1, 1, 1}), "#\n");
}

TEST(Mask, LengthsPaddingAndDocuments) {
  EXPECT_EQ(draw(Mask::key_lengths({3, 0}), {2, 1, 1, 4}, 0), "###.\n");
  EXPECT_EQ(draw(Mask::key_lengths({3, 0}), {2, 1, 1, 4}, 1), "....\n");

  const auto padding = flags<2>({2, 3}, "##.#..");
  EXPECT_EQ(draw(Mask::key_padding(padding.view(), Polarity::Keep), {2, 1, 1, 3}, 1), "#..\n");
  EXPECT_EQ(draw(Mask::key_padding(padding.view(), Polarity::Drop), {2, 1, 1, 3}, 1), ".##\n");

  Tensor<Index, 2> documents({1, 4});
  documents(0, 2) = documents(0, 3) = 1;
  EXPECT_EQ(
      draw(Mask::documents(documents.view(), documents.view()) & Mask::causal(), {1, 1, 4, 4}),
      "#...\n"
      "##..\n"
      "..#.\n"
      "..##\n");
}

TEST(Mask, BooleanTensorBroadcastsOverBatchAndHeads) {
  const auto cells = flags<4>({1, 2, 2, 2}, "#.##.###");
  const Mask mask = Mask::boolean(cells.view(), Polarity::Keep);
  EXPECT_EQ(draw(mask, {3, 2, 2, 2}, 2, 0), "#.\n##\n");
  EXPECT_EQ(draw(mask, {3, 2, 2, 2}, 2, 1), ".#\n##\n");
  // A transposed view means its own axes, not the memory's.
  EXPECT_EQ(draw(Mask::boolean(cells.view().transposed(2, 3), Polarity::Keep), {1, 2, 2, 2}),
            "##\n.#\n");
}

TEST(Mask, OwnsWhatItWasGiven) {
  auto padding = flags<2>({1, 2}, "##");
  const Mask mask = Mask::key_padding(padding.view(), Polarity::Keep);
  padding(0, 0) = false;
  EXPECT_EQ(draw(mask, {1, 1, 1, 2}), "##\n");
}

TEST(Mask, IntersectionOfRulesIsWhatEveryRuleLeaves) {
  const Mask mask = Mask::causal() & Mask::sliding_window({.left = 1, .right = std::nullopt}) &
                    Mask::key_lengths({3});
  EXPECT_EQ(draw(mask, {1, 1, 4, 4}),
            "#...\n"
            "##..\n"
            ".##.\n"
            "..#.\n");
  EXPECT_EQ(mask.describe(), "causal & window (left 1, right unbounded) & key lengths [3]");
  EXPECT_EQ(Mask().describe(), "none");
}

TEST(Mask, KeyRangeHoldsEveryVisibleKey) {
  const auto padding = flags<2>({1, 5}, "#.###");
  const BoundMask mask =
      (Mask::causal(Corner::bottom_right()) & Mask::key_padding(padding.view(), Polarity::Keep))
          .bind("test", {1, 1, 3, 5});
  EXPECT_TRUE(mask.has_pointwise_rules());
  EXPECT_EQ(mask.key_range(0, 1).begin, 0);
  EXPECT_EQ(mask.key_range(0, 1).end, 4);
  EXPECT_TRUE(mask.row_sees_a_key(0, 0, 0));
  EXPECT_FALSE(Mask::key_lengths({0}).bind("test", {1, 1, 1, 5}).row_sees_a_key(0, 0, 0));
}

TEST(Mask, RefusesWhatDoesNotFit) {
  const MaskShape shape{2, 4, 3, 5};
  const auto refused = [&](const Mask& mask, const std::string& message) {
    EXPECT_THAT([&] { mask.bind("attention", shape); },
                ThrowsMessage<std::invalid_argument>(HasSubstr("attention: mask: " + message)));
  };
  refused(
      Mask::causal(),
      "expected a corner (Corner::top_left() or Corner::bottom_right()) for a causal rule when T "
      "and S differ, got none with T=3, S=5");
  refused(Mask::sliding_window({.left = 1, .right = 0}), "expected a corner");
  refused(Mask::causal(Corner::at({0, 1, 2})), "expected 1 or B=2 corner offsets, got 3");
  refused(Mask::key_lengths({1, 2, 3}), "expected 1 or B=2 key lengths, got 3");
  refused(Mask::key_lengths({6}), "expected key lengths of at most S=5, got 6");
  refused(Mask::prefix_causal({6}, Corner::top_left()),
          "expected prefix lengths of at most S=5, got 6");
  const Tensor<bool, 2> transposed({5, 2});
  refused(Mask::key_padding(transposed.view(), Polarity::Drop),
          "expected the shape of key padding to broadcast to [2, 5], got [5, 2]");
  const Tensor<bool, 4> wrong_axis({2, 3, 1, 1});
  refused(Mask::boolean(wrong_axis.view(), Polarity::Drop),
          "expected the shape of a boolean tensor to broadcast to [2, 4, 3, 5], got [2, 3, 1, 1]");
  const Tensor<Index, 2> numbers({2, 4});
  refused(Mask::documents(numbers.view(), numbers.view()),
          "expected the shape of query documents to broadcast to [2, 3], got [2, 4]");
}

TEST(Mask, RefusesNegativeNumbers) {
  EXPECT_THAT([] { Mask::sliding_window({.left = -1, .right = 0}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr(
                  "Mask::sliding_window: mask: expected window sides of 0 or more, got -1")));
  EXPECT_THAT(
      [] {
        Mask::key_lengths({2, -3});
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr("expected key lengths of 0 or more, got -3")));
  EXPECT_THAT([] { Mask::prefix_causal({-1}); },
              ThrowsMessage<std::invalid_argument>(
                  HasSubstr("expected prefix lengths of 0 or more, got -1")));
  EXPECT_THAT(
      [] {
        Mask().bind("attention", {2, 4, -3, 5});
      },
      ThrowsMessage<std::invalid_argument>(HasSubstr(
          "attention: mask: expected sizes B, H, T and S of 0 or more, got [2, 4, -3, 5]")));
}

TEST(Mask, RefusesFlagsWithoutData) {
  const TensorView<const bool, 2> nothing(nullptr, {2, 5});
  EXPECT_THAT([&] { Mask::key_padding(nothing, Polarity::Keep); },
              ThrowsMessage<std::invalid_argument>(HasSubstr(
                  "Mask::key_padding: mask: expected data for shape [2, 5], got a null pointer")));
}

template <class... Arguments>
concept MakesABooleanMask = requires(Arguments... arguments) {
  Mask::boolean(arguments...);
};
template <class... Arguments>
concept MakesAPaddingMask = requires(Arguments... arguments) {
  Mask::key_padding(arguments...);
};

TEST(Mask, ABooleanTensorCannotBePassedWithoutItsPolarity) {
  static_assert(MakesABooleanMask<TensorView<const bool, 4>, Polarity>);
  static_assert(!MakesABooleanMask<TensorView<const bool, 4>>);
  static_assert(!MakesAPaddingMask<TensorView<const bool, 2>>);
  // Not even a bool will do for it.
  static_assert(!MakesABooleanMask<TensorView<const bool, 4>, bool>);
}

TEST(Mask, WhatIsBoundOutlivesTheMask) {
  BoundMask bound;
  {
    const Mask mask = Mask::prefix_causal({1, 3}, Corner::at({0, -1})) & Mask::key_lengths({2, 4}) &
                      Mask::key_padding(flags<2>({1, 5}, "##.##").view(), Polarity::Keep);
    bound = mask.bind("test", {2, 1, 3, 5});
  }
  EXPECT_EQ(bound.key_range(0, 2).end, 2);
  EXPECT_EQ(bound.key_range(1, 0).end, 3);
  EXPECT_TRUE(bound.visible(1, 0, 0, 1));
  EXPECT_FALSE(bound.visible(1, 0, 0, 2));
}

}  // namespace
}  // namespace qkv
