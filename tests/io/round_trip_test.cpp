// What is written is what is read, for every dtype, rank and format.

#include "io/npy.h"
#include "io/safetensors.h"
#include "tests/io/support.h"

namespace qkv {
namespace {

using testing::read_file;

constexpr DType kDTypes[] = {DType::Float64, DType::Float32, DType::Float16, DType::BFloat16,
                             DType::Int64,   DType::Int32,   DType::Int16,   DType::Int8,
                             DType::UInt64,  DType::UInt32,  DType::UInt16,  DType::UInt8,
                             DType::Bool};

const std::vector<std::vector<Index>> kShapes = {
    {},        {1},       {5},          {0},          {2, 3},         {0, 4},
    {2, 1, 3}, {3, 0, 2}, {2, 3, 1, 2}, {1, 0, 0, 3}, {1, 2, 1, 2, 1}};

/// Every byte different from its neighbours, or a valid bool.
StoredTensor patterned(DType dtype, const std::vector<Index>& shape) {
  const std::size_t size = static_cast<std::size_t>(element_count(shape)) * size_of(dtype);
  const auto bytes = std::make_shared<std::vector<std::byte>>(size);
  for (std::size_t i = 0; i < size; ++i) {
    (*bytes)[i] = static_cast<std::byte>(dtype == DType::Bool ? i % 3 % 2 : (i * 37 + 11) % 256);
  }
  return {dtype, shape, *bytes, bytes};
}

void expect_same(const StoredTensor& read, const StoredTensor& written) {
  EXPECT_EQ(read.dtype(), written.dtype());
  EXPECT_EQ(read.shape(), written.shape());
  EXPECT_TRUE(std::ranges::equal(read.bytes(), written.bytes()));
}

TensorFile all_tensors(bool with_bfloat16) {
  TensorFile file;
  for (const DType dtype : kDTypes) {
    if (dtype == DType::BFloat16 && !with_bfloat16) continue;
    for (const std::vector<Index>& shape : kShapes) {
      file.tensors[std::string(name_of(dtype)) + to_string(shape)] = patterned(dtype, shape);
    }
  }
  return file;
}

void expect_round_trip(const std::string& name, const TensorFile& written) {
  const TemporaryDirectory directory;
  const std::string path = directory.file(name);
  write_tensors(path, written);
  const TensorFile read = read_tensors(path);
  EXPECT_EQ(read.metadata, written.metadata);
  ASSERT_EQ(read.tensors.size(), written.tensors.size());
  for (const auto& [tensor_name, tensor] : written.tensors) {
    SCOPED_TRACE(tensor_name);
    expect_same(read.at(tensor_name), tensor);
  }
  const std::string again = directory.file("again-" + name);
  write_tensors(again, read);
  EXPECT_EQ(read_file(again), read_file(path));
}

TEST(RoundTrip, Safetensors) {
  TensorFile file = all_tensors(true);
  file.metadata = {{"model", "测试 \"quoted\"\n"}, {"", ""}};
  file.tensors["名字 \"q\"\t\\"] = patterned(DType::Float32, {2});
  file.tensors[""] = patterned(DType::UInt8, {3});
  expect_round_trip("w.safetensors", file);
}

TEST(RoundTrip, Npz) {
  TensorFile file = all_tensors(false);
  file.tensors["测试/层 0"] = patterned(DType::Float32, {2});
  expect_round_trip("w.npz", file);
}

TEST(RoundTrip, Npy) {
  for (const auto& [name, tensor] : all_tensors(false).tensors) {
    SCOPED_TRACE(name);
    expect_round_trip("w.npy", {{{"array", tensor}}, {}});
  }
}

TEST(RoundTrip, NothingAtAll) {
  expect_round_trip("w.safetensors", {});
  expect_round_trip("w.npz", {});
}

TEST(RoundTrip, ValuesThroughTypedTensors) {
  Tensor<double, 4> tensor({2, 3, 1, 2});
  for (Index i = 0; i < 12; ++i) tensor.data()[i] = 0.1 * static_cast<double>(i) - 0.3;
  Tensor<bool, 2> mask({2, 2});
  mask(0, 1) = mask(1, 0) = true;
  const TemporaryDirectory directory;
  const std::string path = directory.file("w.safetensors");
  write_tensors(path, {{{"x", store(tensor.view())}, {"mask", store(mask.view())}}, {}});
  const TensorFile read = read_tensors(path);
  EXPECT_TRUE(std::ranges::equal(read.at("x").to<double, 4>("x").elements(), tensor.elements()));
  EXPECT_THAT((read.at("mask").to<bool, 2>("mask").elements()),
              ::testing::ElementsAre(false, true, true, false));
}

// The format asks for a header padded to 8 bytes; then every tensor lies at a multiple of its element
// size as long as wider elements come first.
TEST(SafetensorsLayout, AlignsEveryTensor) {
  const TensorFile file = all_tensors(true);
  const SafetensorsLayout layout = lay_out_safetensors(file);
  EXPECT_EQ(layout.header.size() % 8, 0U);
  std::uint64_t offset = 0;
  std::size_t width = 8;
  for (const StoredTensor* const tensor : layout.tensors) {
    EXPECT_LE(size_of(tensor->dtype()), width);
    width = size_of(tensor->dtype());
    EXPECT_EQ(offset % width, 0U);
    offset += tensor->bytes().size();
  }
}

TEST(SafetensorsLayout, HeaderAsTheFormatSpellsIt) {
  TensorFile file;
  file.metadata["k"] = "v";
  file.tensors["b"] = patterned(DType::BFloat16, {2, 3});
  file.tensors["a"] = patterned(DType::Bool, {4});
  file.tensors["c"] = patterned(DType::Float64, {});
  const std::string json = R"({"__metadata__":{"k":"v"},)"
                           R"("c":{"data_offsets":[0,8],"dtype":"F64","shape":[]},)"
                           R"("b":{"data_offsets":[8,20],"dtype":"BF16","shape":[2,3]},)"
                           R"("a":{"data_offsets":[20,24],"dtype":"BOOL","shape":[4]}})";
  const std::size_t padded = (json.size() + 7) / 8 * 8;
  EXPECT_EQ(lay_out_safetensors(file).header,
            testing::little_endian(padded, 8) + json + std::string(padded - json.size(), ' '));
}

TEST(NpyHeader, AsNumPyWritesIt) {
  const std::string dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }";
  EXPECT_EQ(npy_header(patterned(DType::Float32, {5}), "x"),
            testing::npy_of(dict + std::string(128 - 10 - dict.size() - 1, ' ') + "\n"));
}

TEST(NpyHeader, RefusesMoreAxesThanNumPyHas) {
  testing::expect_invalid_argument(
      [] { npy_header(patterned(DType::Float32, std::vector<Index>(65, 1)), "x"); },
      "write_tensors: \"x\": expected at most 64 axes, got 65");
}

}  // namespace
}  // namespace qkv
