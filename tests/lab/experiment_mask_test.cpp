// Mutations that each made a test below fail: Renormalizing without its division (lab/hand_written.cpp): LateMasks; a fill of 0:
// FillsInEveryDtype; a prefix that is ignored (base/mask.cpp): VisibleKeysAsCounted; a causal rule j <= p + 1 (base/mask.cpp): these and
// IsWellFormedAndHolds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "lab/experiment_runs.h"
#include "lab/hand_written.h"
#include "tests/lab/experiment_results.h"

namespace qkv {
namespace {

using test::named;
using test::number;

const lab::Experiment& mask() {
  static const lab::Experiment experiment = lab::run_mask(test::quick_options());
  return experiment;
}

TEST(MaskExperiment, IsWellFormedAndHolds) {
  test::expect_well_formed(mask());
  test::expect_effects(
      mask(), {"library_hides_exactly", "finite_fill_is_enough_in_usual_rows", "blind_rows_break",
               "fills_overflow", "weak_fill_loses", "zero_weight_does_not_stop_nan",
               "late_mask_loses_weight", "renormalised_is_equal", "late_mask_sees_the_future",
               "nan_poisons_the_gradient", "prefix_opens_the_first_rows"});
}

TEST(MaskExperiment, FillsInEveryDtype) {
  const lab::Table& table = named(mask().tables, "fills");
  ASSERT_EQ(table.rows.size(), 20U);  // four fills and the library in four dtypes
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    EXPECT_EQ(number(table, row, "usual"), 0) << row;
    const bool library = row % 5 == 4;
    const bool infinite = row % 5 == 0 || row == 12;  // −1e9 in float16
    const double blind = number(table, row, "blind");
    if (library) {
      EXPECT_EQ(blind, 0) << row;
      EXPECT_EQ(number(table, row, "far_below"), 0) << row;
    } else if (infinite) {
      EXPECT_TRUE(std::isnan(blind)) << row;
    } else {
      EXPECT_EQ(blind, 1.0 / 8) << row;  // of 8 keys
    }
    // Row 0 sees nothing; key 1 is hidden by both masks, so that the other seven share its weight.
    if (row % 5 == 1) {
      EXPECT_NEAR(number(table, row, "two_masks"), 1.0 / 7, 1e-3) << row;
    }
  }
}

TEST(MaskExperiment, LateMasks) {
  const lab::Table& table = named(mask().tables, "late");
  EXPECT_EQ(number(table, 0, "influence"), 0);
  EXPECT_LT(number(table, 1, "smallest_sum"), 0.9);
  EXPECT_GT(number(table, 1, "influence"), 0.01);
  EXPECT_NEAR(number(table, 2, "smallest_sum"), 1, 1e-12);
  EXPECT_LT(number(table, 2, "context_error"), 1e-12);
}

TEST(MaskExperiment, VisibleKeysAsCounted) {
  const lab::Table& table = named(mask().tables, "visible_keys");
  for (std::size_t t = 0; t < 8; ++t) {
    const auto count = static_cast<double>(t + 1);
    EXPECT_EQ(number(table, t, "none"), 8);
    EXPECT_EQ(number(table, t, "causal"), count);
    EXPECT_EQ(number(table, t, "prefix"), std::max(count, 3.0));
    EXPECT_EQ(number(table, t, "padded"), std::max(count - 3, 0.0));
  }
}

// With q = [1], scale 1, keys 0 and ln 3: weights 1/4 and 3/4. The second hidden late: 1/4 and 0, and 1 when divided.
TEST(HandWritten, AsByHand) {
  const double one[] = {1};
  const double keys[] = {0, std::log(3.0)};
  const double values[] = {4, 8};
  const bool hides[] = {false, true};
  lab::HandWritten call{
      .query = {one, {1, 1, 1, 1}}, .key = {keys, {1, 1, 2, 1}}, .value = {values, {1, 1, 2, 1}}};
  EXPECT_NEAR(lab::attend_by_hand(call).context(0, 0, 0, 0), 7, 1e-14);
  call.hides = TensorView<const bool, 4>(hides, {1, 1, 1, 2});
  EXPECT_EQ(lab::attend_by_hand(call).context(0, 0, 0, 0), 4);
  call.masked_by = lab::MaskedBy::Multiplying;
  EXPECT_NEAR(lab::attend_by_hand(call).context(0, 0, 0, 0), 1, 1e-15);
  call.masked_by = lab::MaskedBy::Renormalizing;
  EXPECT_NEAR(lab::attend_by_hand(call).context(0, 0, 0, 0), 4, 1e-14);
  call.masked_by = lab::MaskedBy::Adding;
  call.fill = -std::log(3.0);  // both keys at 0
  EXPECT_NEAR(lab::attend_by_hand(call).context(0, 0, 0, 0), 6, 1e-14);
}

TEST(HandWritten, MasksBroadcastAsInNumPy) {
  EXPECT_EQ(lab::broadcast_shape({2, 4, 4, 4}, {2, 4, 1, 1}), (Extents<4>{2, 4, 4, 4}));
  EXPECT_EQ(lab::broadcast_shape({2, 1, 6, 6}, {2, 6, 1, 1}), (Extents<4>{2, 6, 6, 6}));
  EXPECT_EQ(lab::broadcast_shape({2, 4, 6, 6}, {2, 6, 1, 1}), std::nullopt);
}

TEST(HandWritten, RoundsToTheDtype) {
  EXPECT_EQ(lab::rounded(DType::Float32, 0.1), static_cast<double>(0.1F));
  EXPECT_EQ(lab::rounded(DType::Float16, 2049), 2048);
  EXPECT_EQ(lab::rounded(DType::Float16, -1e9), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(lab::rounded(DType::BFloat16, 257), 256);
  for (const DType dtype : {DType::Float64, DType::Float32, DType::Float16, DType::BFloat16}) {
    EXPECT_EQ(lab::rounded(dtype, lab::lowest(dtype)), lab::lowest(dtype));
    EXPECT_TRUE(std::isinf(lab::rounded(dtype, 2 * lab::lowest(dtype))));
  }
}

}  // namespace
}  // namespace qkv
