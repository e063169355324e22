#include "lab/mask_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "lab/trace_mask.h"

namespace qkv {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr MaskShape kSizes = {.batch = 2, .heads = 3, .queries = 4, .keys = 4};

lab::MaskTrace one_rule(const Mask& mask, const MaskShape& sizes = kSizes) {
  return lab::trace_rules(mask, sizes).at(0);
}

std::vector<std::string> draw(const lab::MaskTrace& mask, Index rows, Index columns) {
  return lab::draw_matrix(rows, columns,
                          [&](Index t, Index s) { return lab::additive(mask, 0, 0, t, s); });
}

TEST(MaskText, CausalIsDrawnAsInTheLesson) {
  EXPECT_THAT(draw(one_rule(Mask::causal()), 4, 4), ElementsAre("[[0, -∞, -∞, -∞],",  //
                                                                " [0,  0, -∞, -∞],",  //
                                                                " [0,  0,  0, -∞],",  //
                                                                " [0,  0,  0,  0]]"));
}

TEST(MaskText, CornersPlaceTheDiagonal) {
  const MaskShape sizes = {.batch = 1, .heads = 1, .queries = 2, .keys = 4};
  EXPECT_THAT(draw(one_rule(Mask::causal(Corner::top_left()), sizes), 2, 4),
              ElementsAre("[[0, -∞, -∞, -∞],",  //
                          " [0,  0, -∞, -∞]]"));
  EXPECT_THAT(draw(one_rule(Mask::causal(Corner::bottom_right()), sizes), 2, 4),
              ElementsAre("[[0, 0, 0, -∞],",  //
                          " [0, 0, 0,  0]]"));
}

TEST(MaskText, LargeMatricesAreElided) {
  const auto lines = lab::draw_matrix(100, 100, [](Index t, Index s) {
    return s > t ? -std::numeric_limits<double>::infinity() : 0.0;
  });
  ASSERT_THAT(lines, SizeIs(9));  // five rows, a gap, three rows
  EXPECT_EQ(lines[0], "[[0, -∞, -∞, -∞, -∞, -∞, -∞, -∞, -∞, -∞, …, -∞, -∞, -∞, -∞, -∞],");
  EXPECT_EQ(lines[5], " …");
  EXPECT_EQ(lines[8], " [0,  0,  0,  0,  0,  0,  0,  0,  0,  0, …,  0,  0,  0,  0,  0]]");
  EXPECT_THAT(lab::draw_matrix(0, 3, [](Index, Index) { return 0.0; }), ElementsAre("[]"));
}

TEST(MaskText, BroadcastShapesAndStridesOfSectionFour) {
  const lab::MaskTrace causal = one_rule(Mask::causal());
  EXPECT_THAT(causal.shape, ElementsAre(1, 1, 4, 4));
  EXPECT_THAT(causal.strides, ElementsAre(0, 0, 4, 1));
  EXPECT_EQ(lab::describe_repeats(causal), "stride 0 on B and H");

  Tensor<bool, 2> padding({2, 4});
  padding(1, 3) = true;
  const lab::MaskTrace keys = one_rule(Mask::key_padding(padding.view(), Polarity::Drop));
  EXPECT_THAT(keys.shape, ElementsAre(2, 1, 1, 4));
  EXPECT_THAT(keys.strides, ElementsAre(4, 0, 0, 1));
  EXPECT_EQ(lab::describe_repeats(keys), "stride 0 on H and T");
  EXPECT_EQ(lab::additive(keys, 0, 0, 0, 3), 0);
  EXPECT_EQ(lab::additive(keys, 1, 2, 0, 3), -std::numeric_limits<double>::infinity());

  const lab::MaskTrace both =
      lab::trace_mask(Mask::causal() & Mask::key_padding(padding.view(), Polarity::Drop), kSizes);
  EXPECT_THAT(both.shape, ElementsAre(2, 1, 4, 4));
  EXPECT_THAT(both.strides, ElementsAre(16, 0, 4, 1));
  EXPECT_EQ(lab::describe_repeats(both), "stride 0 on H");
}

TEST(MaskText, EveryRuleSaysWhichAxesItReads) {
  Tensor<bool, 4> flags({1, 3, 1, 4});
  Tensor<Index, 2> documents({2, 4});
  const auto shape = [](const Mask& mask) { return one_rule(mask).shape; };
  EXPECT_THAT(shape(Mask::prefix_causal({1, 2})), ElementsAre(2, 1, 4, 4));
  EXPECT_THAT(shape(Mask::prefix_causal({1})), ElementsAre(1, 1, 4, 4));
  EXPECT_THAT(shape(Mask::sliding_window({1, 0, Corner::at({0, 1})})), ElementsAre(2, 1, 4, 4));
  EXPECT_THAT(shape(Mask::key_lengths({3})), ElementsAre(1, 1, 1, 4));
  EXPECT_THAT(shape(Mask::key_lengths({3, 4})), ElementsAre(2, 1, 1, 4));
  EXPECT_THAT(shape(Mask::documents(documents.view(), documents.view())), ElementsAre(2, 1, 4, 4));
  EXPECT_THAT(shape(Mask::boolean(flags.view(), Polarity::Keep)), ElementsAre(1, 3, 1, 4));
  EXPECT_THAT(lab::trace_mask({}, kSizes).strides, ElementsAre(0, 0, 0, 0));
}

}  // namespace
}  // namespace qkv
