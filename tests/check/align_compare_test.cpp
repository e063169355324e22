#include "check/align_compare.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "check/align_inputs.h"
#include "check/align_module.h"
#include "tests/check/results.h"

namespace qkv {
namespace {

using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

AlignCase plain_case() {
  AlignCase one;
  one.mask = AlignMask::CausalAndPadding;
  one.batch = 2;
  one.heads = 3;
  one.queries = one.keys = 5;
  one.model_width = 12;
  return one;
}

AlignCase hiding_case() {
  AlignCase one = plain_case();
  one.mask = AlignMask::HiddenSample;
  one.biases = AlignBiases::None;
  return one;
}

/// Our own results in place of the official ones, with one tensor exchanged.
AlignRow compare_tensor(const AlignCase& one, DType dtype, const std::string& name,
                        const StoredTensor& ours, const StoredTensor& oracle,
                        const StoredTensor& official) {
  TensorFile our_file, oracle_file, official_file;
  our_file.tensors[name] = ours;
  oracle_file.tensors[name] = oracle;
  official_file.tensors[name] = official;
  return compare(one, "official", dtype, {our_file, oracle_file, official_file});
}

AlignRow compare_float64(const std::string& name, const StoredTensor& ours,
                         const StoredTensor& official) {
  return compare_tensor(plain_case(), DType::Float64, name, ours, ours, official);
}

TEST(AlignCompare, EqualResultsPassWithNoDifference) {
  const TensorFile results =
      run_module<double>(plain_case(), draw_inputs(plain_case(), DType::Float64));
  const AlignRow row =
      compare(plain_case(), "official", DType::Float64, {results, results, results});
  EXPECT_EQ(row.verdict, AlignVerdict::Pass);
  ASSERT_EQ(row.differences.size(), 4U);
  for (const AlignDifference& one : row.differences) {
    EXPECT_EQ(one.difference, 0.0) << name_of(one.quantity);
    EXPECT_TRUE(one.passed);
  }
  EXPECT_EQ(row.explanation(), "");
}

TEST(AlignCompare, CorruptedParameterFailsEveryQuantity) {
  const TensorFile inputs = draw_inputs(plain_case(), DType::Float64);
  const TensorFile official = run_module<double>(plain_case(), inputs);
  const TensorFile ours = run_module<double>(
      plain_case(), with_changed_element<double>(inputs, "in_proj_weight", 1e-6));
  const AlignRow row = compare(plain_case(), "official", DType::Float64, {ours, ours, official});
  EXPECT_EQ(row.verdict, AlignVerdict::Fail);
  ASSERT_EQ(row.differences.size(), 4U);
  for (const AlignDifference& one : row.differences)
    EXPECT_FALSE(one.passed) << name_of(one.quantity);
  EXPECT_THAT(row.explanation(), HasSubstr("forward: output"));
  EXPECT_THAT(row.explanation(), HasSubstr("allowed 1.0e-11"));
}

TEST(AlignCompare, CorruptedFloat32ParameterFails) {
  const TensorFile inputs = draw_inputs(plain_case(), DType::Float32);
  const TensorFile oracle = run_module<double>(plain_case(), widened(inputs));
  const TensorFile official = run_module<float>(plain_case(), inputs);
  const TensorFile ours = run_module<float>(
      plain_case(), with_changed_element<float>(inputs, "out_proj.weight", 1e-3F));
  EXPECT_EQ(compare(plain_case(), "official", DType::Float32, {official, oracle, official}).verdict,
            AlignVerdict::Pass);
  EXPECT_EQ(compare(plain_case(), "official", DType::Float32, {ours, oracle, official}).verdict,
            AlignVerdict::Fail);
}

TEST(AlignCompare, DifferenceIsRelativeToTheLargestOfficialEntry) {
  const AlignRow row = compare_float64("output", row_of({8, 1.5}), row_of({8, 1}));
  EXPECT_EQ(row.differences.at(0).difference, 0.5 / 8);
  EXPECT_EQ(row.explanation(), "forward: output differs by 6.2e-02, allowed 1.0e-12");
}

TEST(AlignCompare, Float64LimitsAreOneTrillionthAndTenForParameters) {
  const StoredTensor official = row_of({1, 0.5});
  const auto verdict = [&](const std::string& name, double by) {
    return compare_float64(name, row_of({1, 0.5 + by}), official).verdict;
  };
  for (const std::string name : {"output", "output_with_weights", "weights", "sum.query",
                                 "random.key", "weighted.value", "weighted.attn_mask"}) {
    EXPECT_EQ(verdict(name, 0.9e-12), AlignVerdict::Pass) << name;
    EXPECT_EQ(verdict(name, 1.1e-12), AlignVerdict::Fail) << name;
  }
  for (const std::string name : {"sum.in_proj_weight", "random.in_proj_bias",
                                 "weighted.out_proj.weight", "sum.k_proj_weight"}) {
    EXPECT_EQ(verdict(name, 0.9e-11), AlignVerdict::Pass) << name;
    EXPECT_EQ(verdict(name, 1.1e-11), AlignVerdict::Fail) << name;
  }
}

TEST(AlignCompare, Float32IsAllowedTwiceTheOfficialErrorAndOneRounding) {
  const StoredTensor oracle = row_of({4, 1});
  const double official_error = 1e-6;  // 2.5e-7 of the largest entry
  const double limit = 2 * official_error + 4 * 0x1p-24;
  const auto verdict = [&](double our_error) {
    return compare_tensor(plain_case(), DType::Float32, "output", row_of({4, 1 + our_error}),
                          oracle, row_of({4, 1 - official_error}))
        .verdict;
  };
  EXPECT_EQ(verdict(0.999 * limit), AlignVerdict::Pass);
  EXPECT_EQ(verdict(1.001 * limit), AlignVerdict::Fail);
}

TEST(AlignCompare, NotANumberNeverPassesAsSmall) {
  EXPECT_EQ(compare_float64("output", row_of({1, kNan}), row_of({1, 1})).verdict,
            AlignVerdict::Fail);
  EXPECT_EQ(compare_float64("output", row_of({kNan, 1}), row_of({1, 1})).verdict,
            AlignVerdict::Fail);
  EXPECT_EQ(compare_tensor(hiding_case(), DType::Float64, "sum.query", row_of({1, kNan}),
                           row_of({1, kNan}), row_of({1, kNan}))
                .verdict,
            AlignVerdict::Fail);
}

TEST(AlignCompare, OfficialNanIsAcceptedWhereOursIsZero) {
  const auto compare_hiding = [](const std::string& name, double ours) {
    return compare_tensor(hiding_case(), DType::Float64, name, row_of({1, ours}), row_of({1, ours}),
                          row_of({1, kNan}));
  };
  const AlignRow zero = compare_hiding("output", 0);
  EXPECT_EQ(zero.verdict, AlignVerdict::OfficialIsNan);
  EXPECT_EQ(zero.differences.at(0).difference, 0.0);
  EXPECT_EQ(name_of(zero.verdict), "official is NaN, ours 0");
  EXPECT_EQ(compare_hiding("weights", 0.25).explanation(),
            "weights: the official one is NaN where ours is not 0");
  EXPECT_EQ(compare_hiding("sum.in_proj_weight", 0.25).verdict, AlignVerdict::OfficialIsNan);
}

TEST(AlignCompare, OfficialNanFailsWhereEveryQuerySeesAKey) {
  const AlignRow row = compare_float64("output", row_of({1, 0}), row_of({1, kNan}));
  EXPECT_EQ(row.verdict, AlignVerdict::Fail);
  EXPECT_EQ(row.explanation(), "forward: the official one is NaN though every query sees a key");
}

TEST(AlignCompare, NothingComparableWhereTheOfficialOneIsAllNan) {
  const AlignRow row = compare_tensor(hiding_case(), DType::Float32, "sum.in_proj_weight",
                                      row_of({1, 2}), row_of({1, 2}), row_of({kNan, kNan}));
  EXPECT_EQ(row.verdict, AlignVerdict::OfficialIsNan);
  EXPECT_FALSE(row.differences.at(0).difference);
}

TEST(AlignCompare, MissingOrMisshapenTensorIsAnError) {
  TensorFile ours, official;
  official.tensors["output"] = row_of({1, 2});
  EXPECT_THROW(compare(plain_case(), "official", DType::Float64, {ours, ours, official}),
               std::invalid_argument);
  ours.tensors["output"] = row_of({1, 2, 3});
  try {
    compare(plain_case(), "official", DType::Float64, {ours, ours, official});
    FAIL() << "no error";
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "align: output: expected the official shape [2], got [3]");
  }
}

TEST(AlignModule, HiddenSampleGivesZeros) {
  const AlignCase one = hiding_case();
  const TensorFile results = run_module<double>(one, draw_inputs(one, DType::Float64));
  for (const std::string name : {"output", "sum.query", "weighted.query"}) {
    const auto tensor = results.at(name).to<double, 3>(name);
    const auto hidden = contiguous_copy(tensor.view().slice(0, 1, 2));
    for (const double element : hidden.elements()) EXPECT_EQ(element, 0) << name;
  }
}

}  // namespace
}  // namespace qkv
