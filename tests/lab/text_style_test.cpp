#include "lab/text_style.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace qkv {
namespace {

using ::testing::ElementsAre;

TEST(TextStyle, NumbersAreShort) {
  EXPECT_EQ(lab::short_number(0.70710678), "0.7071");
  EXPECT_EQ(lab::short_number(-0.0), "0");
  EXPECT_EQ(lab::short_number(-2), "-2");
  EXPECT_EQ(lab::short_number(-std::numeric_limits<double>::infinity()), "-∞");
  EXPECT_EQ(lab::short_number(std::numeric_limits<double>::quiet_NaN()), "NaN");
  EXPECT_EQ(lab::short_vector({1, 2, 3, 4}), "[1, 2, 3, 4]");
  EXPECT_EQ(lab::short_vector({1, 2, 3, 4, 5}), "[1, 2, 3, …, 5]");
  EXPECT_EQ(lab::grouped_number(999), "999");
  EXPECT_EQ(lab::grouped_number(307200), "307,200");
}

TEST(TextStyle, WidthsAreThoseOfTheTerminal) {
  EXPECT_EQ(lab::display_width("-∞"), 2U);
  EXPECT_EQ(lab::display_width("注意力"), 6U);
  EXPECT_EQ(lab::display_width("e\u0301"), 1U);
  EXPECT_EQ(lab::pad_left("∞", 3), "  ∞");
  EXPECT_EQ(lab::clip("注意力", 5), "注意…");
  EXPECT_EQ(lab::clip("lighthouse", 6), "light…");
  EXPECT_THAT(lab::wrap("one two three", 7), ElementsAre("one two", "three"));
}

TEST(TextStyle, UnknownTextBecomesPrintable) {
  EXPECT_EQ(lab::printable("a\tb\x7f"), "a?b?");
  EXPECT_EQ(lab::printable("\xc3\x28"), "?(");       // a broken sequence
  EXPECT_EQ(lab::printable("\xed\xa0\x80"), "???");  // a surrogate
  EXPECT_EQ(lab::printable("\xe2\x80\xae"
                           "abc"),
            "?abc");  // right-to-left override
  EXPECT_EQ(lab::token_label("Ġthe"), "the");
  EXPECT_EQ(lab::token_label("▁the"), "the");
  EXPECT_EQ(lab::token_label("Ġ"), "Ġ");
}

}  // namespace
}  // namespace qkv
