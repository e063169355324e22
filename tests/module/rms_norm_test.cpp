#include "qkv/rms_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "qkv/io.h"
#include "tests/cases/attention_cases.h"
#include "tests/module/module_data.h"

namespace qkv {
namespace {

using cases::difference;
using cases::random_tensor;
using cases::same_bits;
using testing::StrEq;
using testing::ThrowsMessage;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <class T>
struct Golden {
  Golden() {
    const TensorFile file =
        read_tensors(QKV_SOURCE_DIR "/tests/module/goldens/rms_norm.safetensors");
    const auto read4 = [&](const std::string& name) { return file.at(name).to<T, 4>(name); };
    const auto read1 = [&](const std::string& name) { return file.at(name).to<T, 1>(name); };
    input = read4("input");
    weight = read1("weight");
    output = read4("output");
    output_gradient = read4("output_gradient");
    input_gradient = read4("gradient.input");
    weight_gradient = read1("gradient.weight");
  }
  Tensor<T, 4> input, output, output_gradient, input_gradient;
  Tensor<T, 1> weight, weight_gradient;
};

template <class T>
class RmsNormGolden : public testing::Test {};
using Types = testing::Types<double, float>;
TYPED_TEST_SUITE(RmsNormGolden, Types);

TYPED_TEST(RmsNormGolden, AgreesWithPyTorchForwardAndBackward) {
  using T = TypeParam;
  const double tolerance = 8 * static_cast<double>(std::numeric_limits<T>::epsilon());
  const Golden<T> golden;
  Tensor<T, 4> output(golden.input.shape());
  rms_norm<T>(golden.input.view(), golden.weight.view(), 1e-3, output.view());
  EXPECT_LE((difference(output, golden.output)), tolerance);

  Tensor<T, 4> input_gradient(golden.input.shape());
  Tensor<T, 1> weight_gradient(golden.weight.shape());
  rms_norm_backward<T>(golden.input.view(), golden.weight.view(), 1e-3,
                       golden.output_gradient.view(),
                       {input_gradient.view(), weight_gradient.view()});
  EXPECT_LE((difference(input_gradient, golden.input_gradient)), tolerance);
  EXPECT_LE((difference(weight_gradient, golden.weight_gradient)), tolerance);
}

TEST(RmsNorm, OneRowByHand) {
  Tensor<double, 4> row({1, 1, 1, 2});
  row(0, 0, 0, 0) = 3;
  row(0, 0, 0, 1) = 4;
  Tensor<double, 1> weight({2});
  weight(0) = 1;
  weight(1) = 10;
  rms_norm<double>(row.view(), weight.view(), 0, row.view());  // √((9 + 16) / 2)
  EXPECT_DOUBLE_EQ(row(0, 0, 0, 0), 3 / std::sqrt(12.5));
  EXPECT_DOUBLE_EQ(row(0, 0, 0, 1), 40 / std::sqrt(12.5));
}

TEST(RmsNorm, StridesAndInPlaceGiveTheSameBits) {
  const auto merged = random_tensor<double, 3>({2, 4, 18}, 1);
  const auto weight = random_tensor<double, 1>({6}, 2);
  const TensorView<const double, 4> split = split_heads(merged.view(), 3);
  Tensor<double, 4> in_place = contiguous_copy(split);
  rms_norm<double>(in_place.view(), weight.view(), 1e-6, in_place.view());
  Tensor<double, 4> output({2, 3, 4, 6});
  rms_norm<double>(split, weight.view(), 1e-6, output.view());
  EXPECT_TRUE(same_bits(in_place, output));
}

TEST(RmsNorm, ARowWithoutGradientIsNotReadBackward) {
  Tensor<double, 4> input = random_tensor<double, 4>({1, 2, 3, 4}, 3);
  const auto weight = random_tensor<double, 1>({4}, 4);
  auto output_gradient = random_tensor<double, 4>({1, 2, 3, 4}, 5);
  for (Index d = 0; d < 4; ++d) output_gradient(0, 1, 2, d) = 0;
  const auto run = [&](double garbage) {
    for (Index d = 0; d < 4; ++d) input(0, 1, 2, d) = garbage;
    Tensor<double, 4> dx(input.shape());
    Tensor<double, 1> dw(weight.shape());
    rms_norm_backward<double>(input.view(), weight.view(), 1e-6, output_gradient.view(),
                              {dx.view(), dw.view()});
    std::vector<double> all(dx.elements().begin(), dx.elements().end());
    all.insert(all.end(), dw.elements().begin(), dw.elements().end());
    return all;
  };
  const auto expected = run(7);
  EXPECT_TRUE(same_bits(run(kNan), expected));
  EXPECT_TRUE(same_bits(run(std::numeric_limits<double>::infinity()), expected));
}

TEST(RmsNormErrors, NameOperationArgumentExpectedAndGot) {
  Tensor<double, 4> input({2, 3, 4, 5});
  Tensor<double, 4> output({2, 3, 4, 5});
  Tensor<double, 1> weight({5});
  EXPECT_THAT([&] { rms_norm<double>(input.view(), weight.view(), -1, output.view()); },
              ThrowsMessage<std::invalid_argument>(
                  StrEq("rms_norm: epsilon: expected a finite number of 0 or more, got -1")));
  EXPECT_THAT([&] { rms_norm<double>(input.view(), weight.view(), kNan, output.view()); },
              ThrowsMessage<std::invalid_argument>(
                  StrEq("rms_norm: epsilon: expected a finite number of 0 or more, got nan")));
  EXPECT_THAT(
      [&] { rms_norm<double>(input.view(), Tensor<double, 1>({4}).view(), 0, output.view()); },
      ThrowsMessage<std::invalid_argument>(StrEq("rms_norm: weight: expected shape [5], got [4]")));
  EXPECT_THAT(
      [&] { rms_norm<double>(input.view(), weight.view(), 0, output.view().slice(1, 0, 2)); },
      ThrowsMessage<std::invalid_argument>(
          StrEq("rms_norm: output: expected shape [2, 3, 4, 5], got [2, 2, 4, 5]")));
  EXPECT_THAT(
      [&] {
        rms_norm_backward<double>(input.view(), weight.view(), 0, output.view(),
                                  {input.view(), weight.view()});
      },
      ThrowsMessage<std::invalid_argument>(
          StrEq("rms_norm_backward: gradients.input: expected memory apart from the input input, "
                "got overlapping views")));
}

}  // namespace
}  // namespace qkv
