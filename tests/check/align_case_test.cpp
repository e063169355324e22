#include "check/align_case.h"

#include <algorithm>
#include <map>
#include <ostream>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "check/align.h"
#include "check/align_inputs.h"

namespace qkv {

void PrintTo(const AlignCase& one, std::ostream* stream) { *stream << one.describe(); }

namespace {

using ::testing::IsSupersetOf;

template <class Value>
std::set<Value> values_of(Value AlignCase::*member) {
  std::set<Value> values;
  for (const AlignCase& one : align_cases()) values.insert(one.*member);
  return values;
}

TEST(AlignCases, FirstIsTheLessonsOwn) {
  EXPECT_EQ(align_cases().front().describe(),
            "the lesson's case, causal, self: B=2 H=4 T=S=5 D=16, no biases");
  EXPECT_TRUE(align_cases().front().is_lesson);
  EXPECT_EQ(std::count_if(align_cases().begin(), align_cases().end(),
                          [](const AlignCase& one) { return one.is_lesson; }),
            1);
}

TEST(AlignCases, EveryMaskHeadCountAndLengthIsThere) {
  EXPECT_EQ(values_of(&AlignCase::mask).size(), 11U);
  EXPECT_THAT(values_of(&AlignCase::heads), IsSupersetOf({1, 3, 8}));
  EXPECT_THAT(values_of(&AlignCase::queries), IsSupersetOf({1, 5, 65, 513}));
  EXPECT_THAT(values_of(&AlignCase::keys), IsSupersetOf({1, 5, 65, 513}));
  EXPECT_EQ(values_of(&AlignCase::inputs).size(), 2U);
  EXPECT_EQ(values_of(&AlignCase::biases).size(), 2U);
}

TEST(AlignCases, MasksMeetSelfAndCrossAttention) {
  std::map<AlignMask, std::set<AlignInputs>> inputs_of;
  for (const AlignCase& one : align_cases()) inputs_of[one.mask].insert(one.inputs);
  for (const auto mask :
       {AlignMask::None, AlignMask::Causal, AlignMask::Padding, AlignMask::CausalAndPadding,
        AlignMask::Boolean, AlignMask::BooleanPerHead, AlignMask::Bias}) {
    EXPECT_EQ(inputs_of[mask].size(), 2U) << name_of(mask);
  }
}

TEST(AlignCases, DifferingKeyAndValueWidthsAreThere) {
  EXPECT_GE(std::count_if(align_cases().begin(), align_cases().end(),
                          [](const AlignCase& one) {
                            return one.key_width && one.value_width &&
                                   one.key_width != one.value_width;
                          }),
            3);
}

TEST(AlignCases, SizesDifferPairwiseWherePyTorchAllowsIt) {
  for (const AlignCase& one : align_cases()) {
    std::multiset<Index> sizes = {one.batch, one.heads, one.queries};
    if (one.inputs == AlignInputs::Cross) {
      sizes.insert(one.keys);
    } else {
      EXPECT_EQ(one.keys, one.queries);
    }
    const std::set<Index> distinct(sizes.begin(), sizes.end());
    EXPECT_EQ(distinct.size(), sizes.size()) << one.describe();
    EXPECT_EQ(one.model_width % one.heads, 0) << one.describe();
  }
}

TEST(AlignCases, DescriptionsAreUnique) {
  std::set<std::string> descriptions;
  for (const AlignCase& one : align_cases()) descriptions.insert(one.describe());
  EXPECT_EQ(descriptions.size(), align_cases().size());
}

TEST(AlignCases, AtLeastSixtyRowsInBothTypes) {
  std::size_t rows = 0;
  for (const AlignCase& one : align_cases()) {
    if (!one.is_lesson) rows += 2 * (torch_cpp_module_accepts(one) ? 3U : 2U);
  }
  EXPECT_GE(rows, 60U);
}

class DrawnInputs : public ::testing::TestWithParam<AlignCase> {};

TEST_P(DrawnInputs, Float32IsFloat64Rounded) {
  const TensorFile wide = draw_inputs(GetParam(), DType::Float64);
  const TensorFile narrow = draw_inputs(GetParam(), DType::Float32);
  const auto expected = wide.at("query").to<double, 3>("query");
  const auto actual = narrow.at("query").to<float, 3>("query");
  ASSERT_EQ(narrow.tensors.size(), wide.tensors.size());
  for (std::size_t i = 0; i < expected.elements().size(); ++i) {
    ASSERT_EQ(actual.elements()[i], static_cast<float>(expected.elements()[i]));
  }
  const auto widened_query = widened(narrow).at("query");
  EXPECT_EQ(widened_query.dtype(), DType::Float64);
  EXPECT_EQ((widened_query.to<float, 3>("query").elements().front()), actual.elements().front());
}

TEST_P(DrawnInputs, HaveTheShapesThatPyTorchWants) {
  const AlignCase& one = GetParam();
  const TensorFile file = draw_inputs(one, DType::Float64);
  const auto shape = [&](const std::string& name) { return file.at(name).shape(); };
  using Shape = std::vector<Index>;
  EXPECT_EQ(shape("query"), (Shape{one.batch, one.queries, one.model_width}));
  EXPECT_EQ(file.contains("key"), one.inputs == AlignInputs::Cross);
  if (file.contains("key")) {
    const Index kdim = one.key_width.value_or(one.model_width);
    const Index vdim = one.value_width.value_or(one.model_width);
    EXPECT_EQ(shape("key"), (Shape{one.batch, one.keys, kdim}));
    EXPECT_EQ(shape("value"), (Shape{one.batch, one.keys, vdim}));
  }
  if (one.has_padding()) {
    EXPECT_EQ(shape("key_padding_mask"), (Shape{one.batch, one.keys}));
  }
  if (one.mask_is_per_head()) {
    EXPECT_EQ(shape("attn_mask"), (Shape{one.batch * one.heads, one.queries, one.keys}));
  }
  EXPECT_EQ(file.contains("out_proj.bias"), one.biases == AlignBiases::All);
}

TEST_P(DrawnInputs, HideWholeRowsOnlyWhereTheCaseSaysSo) {
  const AlignCase& one = GetParam();
  const TensorFile file = draw_inputs(one, DType::Float64);
  if (!one.has_padding()) return;
  const auto hides = file.at("key_padding_mask").to<bool, 2>("key_padding_mask");
  bool some_row_sees_nothing = false;
  for (Index b = 0; b < one.batch; ++b) {
    for (Index t = 0; t < one.queries; ++t) {
      bool sees = false;
      for (Index s = 0; s < one.keys; ++s) {
        sees = sees || (!hides(b, s) && (!one.is_causal() || s <= t));
      }
      some_row_sees_nothing = some_row_sees_nothing || !sees;
    }
  }
  EXPECT_EQ(some_row_sees_nothing, one.hides_rows());
}

INSTANTIATE_TEST_SUITE_P(Table, DrawnInputs, ::testing::ValuesIn(align_cases()),
                         [](const auto& parameter) { return std::to_string(parameter.index); });

TEST(DrawInputs, OtherTypesAreRefused) {
  try {
    draw_inputs(align_cases().front(), DType::Float16);
    FAIL() << "no error";
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "draw inputs: dtype: expected float64 or float32, got float16");
  }
}

}  // namespace
}  // namespace qkv
