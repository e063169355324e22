#include "lab/heat_map.h"

#include <cairo.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <stdexcept>

#include "lab/heat_map_png.h"
#include "lab/heat_map_text.h"
#include "lab/trace_source.h"
#include "qkv/error.h"
#include "tests/temporary_directory.h"

namespace qkv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kPlenty = 1e9;

/// One head of causal weights that are set by hand: 1 | 0.25 0.75 | 0.5 0 0.5.
lab::Trace by_hand() {
  lab::TraceInput input = lab::trace_typed({.input = "1 0; 0 1; 1 1"});
  lab::add_mask(input, {.causal = true});
  lab::Trace trace = lab::trace(input, kPlenty);
  trace.weights(0, 0, 0, 0) = 1;
  trace.weights(0, 0, 1, 0) = 0.25;
  trace.weights(0, 0, 1, 1) = 0.75;
  trace.weights(0, 0, 2, 0) = 0.5;
  trace.weights(0, 0, 2, 1) = 0;
  trace.weights(0, 0, 2, 2) = 0.5;
  return trace;
}

std::string text_of(const lab::Trace& trace, const lab::TextStyle& style) {
  std::string text;
  for (const std::string& line : lab::heat_map_text(trace, {.heads = {0}}, style)) {
    text += line + "\n";
  }
  return text;
}

TEST(HeatMap, HiddenIsNotZero) {
  const lab::HeatMap map = lab::heat_map(by_hand(), {});
  EXPECT_EQ(map.largest, 1);
  EXPECT_TRUE(map.at(0, 1).hidden);
  EXPECT_FALSE(map.at(2, 1).hidden);
  EXPECT_EQ(map.at(2, 1).weight, 0);
}

TEST(HeatMap, BinsByTheLargestOrTheMeanOfWhatIsVisible) {
  // Two by two: rows {0, 1} and {2}, columns {0, 1} and {2}.
  lab::HeatMapOptions options;
  options.most_rows = options.most_columns = 2;
  const lab::HeatMap largest = lab::heat_map(by_hand(), options);
  EXPECT_EQ(largest.row_bin, 2);
  EXPECT_EQ(largest.at(0, 0).weight, 1);
  EXPECT_TRUE(largest.at(0, 1).hidden);
  EXPECT_EQ(largest.at(1, 0).weight, 0.5);
  options.binning = lab::Binning::Mean;
  const lab::HeatMap mean = lab::heat_map(by_hand(), options);
  EXPECT_DOUBLE_EQ(mean.at(0, 0).weight, (1 + 0.25 + 0.75) / 3);
  EXPECT_DOUBLE_EQ(mean.at(1, 0).weight, 0.25);
}

TEST(HeatMap, NotANumberShows) {
  lab::Trace trace = by_hand();
  trace.weights(0, 0, 2, 0) = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(text_of(trace, {}), HasSubstr("NaN"));
  EXPECT_EQ(lab::heat_map(trace, {}).largest, 1);
}

TEST(HeatMap, ShadesWithoutColours) {
  const std::string text = text_of(by_hand(), {});
  EXPECT_THAT(text, HasSubstr("0  █1.00   ·     ·   \n"));
  EXPECT_THAT(text, HasSubstr("1  ░0.25 ▓0.75   ·   \n"));
  EXPECT_THAT(text, HasSubstr("2  ▒0.50  0.00 ▒0.50 \n"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST(HeatMap, ColoursWhereWanted) {
  const std::string text = text_of(by_hand(), {.color = true});
  EXPECT_THAT(text, HasSubstr("48;5;230m 1.00 \x1b[0m"));
  EXPECT_THAT(text, HasSubstr("48;5;233m 0.00 \x1b[0m"));
}

TEST(HeatMap, LabelsAreTokensOrPositions) {
  lab::Trace trace = by_hand();
  EXPECT_EQ(lab::query_label(trace, 0, 2, 1), "2");
  EXPECT_EQ(lab::query_label(trace, 0, 0, 2), "0–1");
  EXPECT_EQ(lab::query_label(trace, 0, 1, 2), "2–2");
  trace.padded_queries.emplace(Extents<2>{1, 3});
  (*trace.padded_queries)(0, 2) = true;
  EXPECT_EQ(lab::query_label(trace, 0, 2, 1), "2 (pad)");
  trace.tokens = {{"Ġsea", "a\x1b[31mb", "\xff"}};
  EXPECT_EQ(lab::key_label(trace, 0, 0, 1), "0 sea");
  EXPECT_EQ(lab::key_label(trace, 0, 1, 1), "1 a?[31mb");  // no escape reaches the terminal
  EXPECT_EQ(lab::key_label(trace, 0, 2, 1), "2 ?");
}

TEST(HeatMap, EmptyWeightsAreSaidToBeEmpty) {
  const lab::Trace trace = lab::trace(lab::trace_sizes({.batch = 0}, kPlenty), kPlenty);
  EXPECT_THAT(lab::heat_map_text(trace, {.heads = {0}}, {}),
              ElementsAre("  nothing to draw: the weights are empty"));
}

class Picture : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.file(name); }

 private:
  TemporaryDirectory folder_;
};

TEST_F(Picture, HasTheDarkestColourWhereTheWeightIsOneAndGreyWhereHidden) {
  lab::write_heat_map_png(path("map.png"), by_hand(), {.heads = {0}});
  cairo_surface_t* image = cairo_image_surface_create_from_png(path("map.png").c_str());
  ASSERT_EQ(cairo_surface_status(image), CAIRO_STATUS_SUCCESS);
  const int width = cairo_image_surface_get_width(image);
  const int height = cairo_image_surface_get_height(image);
  const unsigned char* pixels = cairo_image_surface_get_data(image);
  Index darkest = 0;
  Index grey = 0;
  for (int i = 0; i < width * height; ++i) {
    const int blue = pixels[4 * i];
    const int green = pixels[4 * i + 1];
    const int red = pixels[4 * i + 2];
    darkest += (red < 12 && green < 40 && blue > 80 && blue < 100) ? 1 : 0;
    grey += (red == green && green == blue && red > 230 && red < 245) ? 1 : 0;
  }
  cairo_surface_destroy(image);
  // Cells are 56 pixels wide; one has weight 1, three are hidden, of which hatching takes some.
  EXPECT_GT(darkest, 56 * 56 * 3 / 4);
  EXPECT_GT(grey, 3 * 56 * 56 / 3);
}

TEST_F(Picture, LeavesNothingBehindWhereItCannotBeWritten) {
  EXPECT_THROW(lab::write_heat_map_png(path("no-such-folder/map.png"), by_hand(), {.heads = {0}}),
               FileError);
  std::filesystem::create_directory(path("taken.png"));  // a folder is in the way of the rename
  EXPECT_THROW(lab::write_heat_map_png(path("taken.png"), by_hand(), {.heads = {0}}), FileError);
  std::filesystem::remove(path("taken.png"));
  EXPECT_TRUE(std::filesystem::is_empty(std::filesystem::path(path("x")).parent_path()));
}

TEST_F(Picture, SaysWhenTooManyHeadsWereAskedFor) {
  const lab::PictureOptions options = {.heads = std::vector<Index>(100000, 0)};
  EXPECT_THAT([&] { lab::write_heat_map_png(path("map.png"), by_hand(), options); },
              ::testing::ThrowsMessage<std::invalid_argument>(
                  HasSubstr("trace: --png: expected a picture of at most")));
}

}  // namespace
}  // namespace qkv
