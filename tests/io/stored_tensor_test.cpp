#include <bit>
#include <cmath>
#include <limits>

#include "tests/io/support.h"

namespace qkv {
namespace {

using testing::expect_invalid_argument;

/// One axis of these elements.
template <class T>
StoredTensor stored(std::initializer_list<T> values) {
  Tensor<T, 1> tensor({static_cast<Index>(values.size())});
  std::copy(values.begin(), values.end(), tensor.data());
  return store(tensor.view());
}

template <class To, class From>
std::vector<To> converted(std::initializer_list<From> values) {
  const Tensor<To, 1> tensor = stored(values).template to<To, 1>("x");
  return {tensor.elements().begin(), tensor.elements().end()};
}

template <class T>
std::uint16_t only_bits(const Tensor<T, 1>& tensor) {
  return tensor(0).bits;
}

TEST(StoredTensor, StoresAStridedViewInRowMajorOrder) {
  Tensor<float, 2> tensor({2, 3});
  for (Index i = 0; i < 6; ++i) tensor.data()[i] = static_cast<float>(i);
  const StoredTensor transposed = store(tensor.view().transposed(0, 1));
  EXPECT_EQ(transposed.shape(), (std::vector<Index>{3, 2}));
  EXPECT_EQ(transposed.dtype(), DType::Float32);
  const auto read = transposed.to<float, 2>("x");
  EXPECT_THAT(read.elements(), ::testing::ElementsAre(0, 3, 1, 4, 2, 5));
}

TEST(StoredTensor, ConvertsBetweenFloats) {
  EXPECT_THAT((converted<float, double>({0.1, 1e300, -1e300})),
              ::testing::ElementsAre(0.1F, std::numeric_limits<float>::infinity(),
                                     -std::numeric_limits<float>::infinity()));
  EXPECT_THAT((converted<double, float>({0.1F})),
              ::testing::ElementsAre(0.100000001490116119384765625));
  // 1 + 2^-11 lies halfway between two float16 and goes to the even one.
  EXPECT_EQ(only_bits(stored<float>({1.00048828125F}).to<Float16, 1>("x")), 0x3c00);
  EXPECT_EQ(only_bits(stored<float>({3.140625F}).to<BFloat16, 1>("x")), 0x4049);
  EXPECT_EQ(only_bits(stored<double>({70000}).to<Float16, 1>("x")), 0x7c00);
  EXPECT_THAT((converted<double, BFloat16>({BFloat16::from_bits(0x4049)})),
              ::testing::ElementsAre(3.140625));
  EXPECT_THAT((converted<double, Float16>({Float16::from_bits(0x0001)})),
              ::testing::ElementsAre(std::ldexp(1.0, -24)));
}

TEST(StoredTensor, KeepsTheBitsOfItsOwnType) {
  const auto payload = std::bit_cast<double>(0x7ff8000000001234ULL);
  const std::vector<double> same = converted<double, double>({payload});
  EXPECT_EQ(std::bit_cast<std::uint64_t>(same[0]), 0x7ff8000000001234ULL);
  EXPECT_EQ(only_bits(stored<Float16>({Float16::from_bits(0x7d01)}).to<Float16, 1>("x")), 0x7d01);
}

TEST(StoredTensor, ConvertsIntegersAndBools) {
  EXPECT_THAT((converted<double, std::int8_t>({-128, 127})), ::testing::ElementsAre(-128, 127));
  EXPECT_THAT((converted<std::int64_t, std::uint32_t>({0xffffffffU})),
              ::testing::ElementsAre(4294967295));
  EXPECT_THAT((converted<std::int64_t, bool>({true, false})), ::testing::ElementsAre(1, 0));
  EXPECT_THAT((converted<float, bool>({true, false})), ::testing::ElementsAre(1, 0));
  EXPECT_THAT((converted<bool, std::int64_t>({0, 1})), ::testing::ElementsAre(false, true));
  // Rounded once: by way of double, 2^53 + 2^29 + 1 would become 2^53.
  EXPECT_THAT((converted<float, std::int64_t>({(1LL << 53) + (1LL << 29) + 1})),
              ::testing::ElementsAre(9007200328482816.0F));
  EXPECT_THAT((converted<double, std::uint64_t>({~0ULL})), ::testing::ElementsAre(0x1p64));
  EXPECT_EQ(only_bits(stored<std::int16_t>({1000}).to<Float16, 1>("x")), 0x63d0);
  EXPECT_EQ(only_bits(stored<std::int64_t>({-3}).to<BFloat16, 1>("x")), 0xc040);
}

TEST(StoredTensor, RefusesIntegersThatDoNotFit) {
  expect_invalid_argument(
      [] {
        stored<std::uint64_t>({1, 1ULL << 63U}).to<std::int64_t, 1>("ids");
      },
      "StoredTensor::to: \"ids\": expected integers that fit int64, got "
      "9223372036854775808 at element 1");
  expect_invalid_argument(
      [] {
        stored<std::int32_t>({0, 1, 2}).to<bool, 1>("mask");
      },
      "StoredTensor::to: \"mask\": expected integers that fit bool, got 2 at "
      "element 2");
  expect_invalid_argument([] { stored<std::int8_t>({-1}).to<bool, 1>("mask"); },
                          "StoredTensor::to: \"mask\": expected integers that fit bool, got -1 at "
                          "element 0");
  expect_invalid_argument([] { stored<std::int32_t>({100000}).to<Float16, 1>("x"); },
                          "StoredTensor::to: \"x\": expected integers that fit float16, got 100000 "
                          "at element 0");
}

TEST(StoredTensor, RefusesFloatsAsIntegers) {
  expect_invalid_argument([] { stored<float>({1}).to<std::int64_t, 1>("ids"); },
                          "StoredTensor::to: \"ids\": expected integers or bool to read as int64, "
                          "got float32");
  expect_invalid_argument([] { stored<BFloat16>({BFloat16(1.0)}).to<bool, 1>("mask"); },
                          "StoredTensor::to: \"mask\": expected integers or bool to read as bool, "
                          "got bfloat16");
}

TEST(StoredTensor, RefusesAnotherRank) {
  expect_invalid_argument(
      [] {
        stored<float>({1, 2}).to<float, 4>("q");
      },
      "StoredTensor::to: \"q\": expected rank 4, got shape [2]");
}

TEST(StoredTensor, RefusesBytesThatAreNotTheTensor) {
  const std::vector<std::byte> bytes(8, std::byte{2});
  expect_invalid_argument([&] { StoredTensor(DType::Float32, {3}, bytes, nullptr); },
                          "StoredTensor: bytes: expected 12 bytes for float32 [3], got 8");
  expect_invalid_argument([&] { StoredTensor(DType::Float32, {1LL << 61}, bytes, nullptr); },
                          "StoredTensor: bytes: expected fewer than 2^63 bytes for float32 "
                          "[2305843009213693952], got 8");
  expect_invalid_argument(
      [&] {
        StoredTensor(DType::Float32, {-2, -1}, bytes, nullptr);
      },
      "tensor: shape: expected extents of 0 or more, got [-2, -1]");
  expect_invalid_argument(
      [&] {
        StoredTensor(DType::Bool, {2, 4}, bytes, nullptr);
      },
      "StoredTensor: bytes: expected 0 or 1 in a bool tensor, got 2 at element 0");
}

TEST(StoredTensor, IsEmptyByDefault) {
  EXPECT_EQ(StoredTensor().shape(), std::vector<Index>{0});
  EXPECT_EQ((StoredTensor().to<float, 1>("x").shape(0)), 0);
}

TEST(TensorFile, NamesTheMissingTensorAndThosePresent) {
  TensorFile file;
  expect_invalid_argument([&] { static_cast<void>(file.at("q")); },
                          "TensorFile::at: name: expected one of no tensors, got \"q\"");
  file.tensors = {{"k", {}}, {"v", {}}};
  EXPECT_FALSE(file.contains("q"));
  EXPECT_TRUE(file.contains("k"));
  EXPECT_EQ(&file.at("k"), &file.tensors["k"]);
  expect_invalid_argument([&] { static_cast<void>(file.at("q")); },
                          "TensorFile::at: name: expected one of \"k\", \"v\", got \"q\"");
  for (int i = 0; i < 100; ++i) file.tensors[std::to_string(i)] = {};
  EXPECT_THROW(static_cast<void>(file.at("q")), std::invalid_argument);
}

}  // namespace
}  // namespace qkv
