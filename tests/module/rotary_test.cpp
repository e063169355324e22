#include "qkv/rotary.h"

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

const std::string kGoldens = QKV_SOURCE_DIR "/tests/module/goldens/rotary.safetensors";

Tensor<double, 4> rotated(const Tensor<double, 4>& input, const Tensor<Index, 2>& positions,
                          const RotaryOptions& options) {
  Tensor<double, 4> output(input.shape());
  apply_rotary<double>(input.view(), positions.view(), options, output.view());
  return output;
}

Tensor<Index, 2> counted(Index tokens, Index first = 0) {
  Tensor<Index, 2> positions({1, tokens});
  for (Index t = 0; t < tokens; ++t) positions(0, t) = first + t;
  return positions;
}

struct GoldenCase {
  std::string name;
  RotaryOptions options;
};

class RotaryGolden : public testing::TestWithParam<GoldenCase> {};

TEST_P(RotaryGolden, IsTheProductWithAComplexNumber) {
  const TensorFile file = read_tensors(kGoldens);
  const auto input = file.at("input").to<double, 4>("input");
  const auto positions = file.at("positions").to<Index, 2>("positions");
  const auto expected = file.at(GetParam().name).to<double, 4>(GetParam().name);
  const auto actual = rotated(input, positions, GetParam().options);
  EXPECT_LE(difference(actual, expected), 1e-14);

  Tensor<float, 4> narrow(input.shape());
  std::copy(input.elements().begin(), input.elements().end(), narrow.data());
  apply_rotary<float>(narrow.view(), positions.view(), GetParam().options, narrow.view());
  EXPECT_LE(difference(narrow, expected), 2e-7);
}

INSTANTIATE_TEST_SUITE_P(
    NumPy, RotaryGolden,
    testing::Values(GoldenCase{"whole.halves", {RotaryPairing::Halves, 10000, std::nullopt}},
                    GoldenCase{"whole.interleaved",
                               {RotaryPairing::Interleaved, 10000, std::nullopt}},
                    GoldenCase{"part.halves", {RotaryPairing::Halves, 500, 6}},
                    GoldenCase{"part.interleaved", {RotaryPairing::Interleaved, 500, 6}}),
    [](const auto& test) {
      std::string name = test.param.name;
      std::replace(name.begin(), name.end(), '.', '_');
      return name;
    });

TEST(Rotary, QuarterTurnByHand) {
  // One pair, base whatever: the angle is the position itself.
  Tensor<double, 4> input({1, 1, 2, 2});
  input(0, 0, 0, 0) = input(0, 0, 1, 0) = 3;
  input(0, 0, 0, 1) = input(0, 0, 1, 1) = 5;
  const auto output = rotated(input, counted(2), {});
  EXPECT_EQ(output(0, 0, 0, 0), 3);
  EXPECT_EQ(output(0, 0, 0, 1), 5);
  EXPECT_DOUBLE_EQ(output(0, 0, 1, 0), 3 * std::cos(1.0) - 5 * std::sin(1.0));
  EXPECT_DOUBLE_EQ(output(0, 0, 1, 1), 3 * std::sin(1.0) + 5 * std::cos(1.0));
}

TEST(Rotary, ProductsDependOnTheDistanceOnly) {
  const auto query = random_tensor<double, 4>({1, 1, 4, 6}, 1);
  const auto key = random_tensor<double, 4>({1, 1, 4, 6}, 2);
  const auto products = [&](Index first) {
    const auto q = rotated(query, counted(4, first), {});
    const auto k = rotated(key, counted(4, first), {});
    std::vector<double> result;
    for (Index t = 0; t < 4; ++t) {
      for (Index s = 0; s < 4; ++s) {
        double sum = 0;
        for (Index d = 0; d < 6; ++d) sum += q(0, 0, t, d) * k(0, 0, s, d);
        result.push_back(sum);
      }
    }
    return result;
  };
  const auto near = products(0);
  const auto far = products(1000);
  EXPECT_LE((difference(far, near)), 1e-12);
}

TEST(Rotary, BackwardIsTheTransposeOfForward) {
  // <R x, y> = <x, Rᵀ y> for any x and y.
  for (const auto pairing : {RotaryPairing::Halves, RotaryPairing::Interleaved}) {
    const RotaryOptions options{pairing, 100, 4};
    const auto x = random_tensor<double, 4>({2, 3, 4, 5}, 3);
    const auto y = random_tensor<double, 4>({2, 3, 4, 5}, 4);
    const auto forward = rotated(x, counted(4, 9), options);
    Tensor<double, 4> backward(x.shape());
    apply_rotary_backward<double>(y.view(), counted(4, 9).view(), options, backward.view());
    double left = 0;
    double right = 0;
    for (std::size_t i = 0; i < x.elements().size(); ++i) {
      left += forward.elements()[i] * y.elements()[i];
      right += x.elements()[i] * backward.elements()[i];
    }
    EXPECT_NEAR(left, right, 1e-12);
  }
}

TEST(Rotary, StridesAndInPlaceGiveTheSameBits) {
  const auto merged = random_tensor<double, 3>({2, 4, 18}, 5);
  const TensorView<const double, 4> split = split_heads(merged.view(), 3);
  const auto dense = contiguous_copy(split);
  const auto expected = rotated(dense, counted(4), {});

  Tensor<double, 4> output({2, 4, 3, 6});
  apply_rotary<double>(split, counted(4).view(), {}, output.view().transposed(1, 2));
  EXPECT_TRUE(same_bits(contiguous_copy(std::as_const(output).view().transposed(1, 2)), expected));

  Tensor<double, 4> in_place = dense;
  apply_rotary<double>(in_place.view(), counted(4).view(), {}, in_place.view());
  EXPECT_TRUE(same_bits(in_place, expected));
}

TEST(Rotary, EmptyExtentsGiveEmptyResults) {
  for (const Extents<4> shape :
       {Extents<4>{0, 2, 3, 4}, {2, 0, 3, 4}, {2, 3, 0, 4}, {2, 3, 4, 0}}) {
    EXPECT_EQ(rotated(Tensor<double, 4>(shape), counted(shape[2]), {}).shape(), shape);
  }
}

TEST(RotaryErrors, NameOperationArgumentExpectedAndGot) {
  Tensor<double, 4> input({2, 3, 4, 5});
  Tensor<double, 4> output({2, 3, 4, 5});
  const auto apply = [&](const RotaryOptions& options, const Tensor<Index, 2>& positions) {
    apply_rotary<double>(input.view(), positions.view(), options, output.view());
  };
  EXPECT_THAT(
      [&] { apply({}, counted(4)); },
      ThrowsMessage<std::invalid_argument>(StrEq(
          "apply_rotary: width: expected an even number of at most the head width 5, got 5")));
  EXPECT_THAT(
      [&] { apply({.width = 6}, counted(4)); },
      ThrowsMessage<std::invalid_argument>(StrEq(
          "apply_rotary: width: expected an even number of at most the head width 5, got 6")));
  EXPECT_THAT(
      [&] { apply({.width = -2}, counted(4)); },
      ThrowsMessage<std::invalid_argument>(StrEq(
          "apply_rotary: width: expected an even number of at most the head width 5, got -2")));
  EXPECT_THAT([&] { apply({.base = 0, .width = 4}, counted(4)); },
              ThrowsMessage<std::invalid_argument>(
                  StrEq("apply_rotary: base: expected a positive finite number, got 0")));
  EXPECT_THAT(
      [&] { apply({.base = std::numeric_limits<double>::quiet_NaN(), .width = 4}, counted(4)); },
      ThrowsMessage<std::invalid_argument>(
          StrEq("apply_rotary: base: expected a positive finite number, got nan")));
  EXPECT_THAT([&] { apply({.width = 4}, counted(3)); },
              ThrowsMessage<std::invalid_argument>(
                  StrEq("apply_rotary: positions: expected shape [1, 4], got [1, 3]")));
  EXPECT_THAT(
      [&] {
        apply({.width = 4}, Tensor<Index, 2>({3, 4}));
      },
      ThrowsMessage<std::invalid_argument>(
          StrEq("apply_rotary: positions: expected shape [2, 4], got [3, 4]")));
}

TEST(RotaryErrors, RefuseOverlappingMemory) {
  Tensor<double, 4> memory({2, 1, 3, 4});
  const Tensor<Index, 2> positions = counted(2);
  EXPECT_THAT(
      [&] {
        apply_rotary<double>(memory.view().slice(2, 0, 2), positions.view(), {},
                             memory.view().slice(2, 1, 3));
      },
      ThrowsMessage<std::invalid_argument>(StrEq("apply_rotary: output: expected memory apart from "
                                                 "the input input, got overlapping views")));
  const TensorView<double, 4> repeated(memory.data(), {2, 1, 2, 4}, {0, 8, 4, 1});
  const Tensor<double, 4> input({2, 1, 2, 4});
  EXPECT_THROW(apply_rotary<double>(input.view(), positions.view(), {}, repeated),
               std::invalid_argument);
}

}  // namespace
}  // namespace qkv
