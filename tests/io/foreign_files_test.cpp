// Files that NumPy, safetensors, PyTorch and ml_dtypes wrote (tests/io/files/make_files.py). Element k,
// in row-major order, of each is k - 3 where the type is signed, k where it is unsigned, (k - 3) / 2
// where it is a float, and k % 3 == 0 where it is bool.

#include "tests/io/support.h"

namespace qkv {
namespace {

using testing::expect_file_error;

std::string path_of(const std::string& name) {
  return std::string(QKV_SOURCE_DIR) + "/tests/io/files/" + name;
}

double expected_value(DType dtype, std::size_t k) {
  const auto index = static_cast<double>(k);
  switch (dtype) {
    case DType::Bool:
      return k % 3 == 0 ? 1 : 0;
    case DType::UInt64:
    case DType::UInt32:
    case DType::UInt16:
    case DType::UInt8:
      return index;
    case DType::Int64:
    case DType::Int32:
    case DType::Int16:
    case DType::Int8:
      return index - 3;
    default:
      return (index - 3) / 2;
  }
}

template <int Rank>
void expect_values(const StoredTensor& tensor, DType dtype, const std::vector<Index>& shape) {
  EXPECT_EQ(tensor.dtype(), dtype);
  EXPECT_EQ(tensor.shape(), shape);
  const Tensor<double, Rank> values = tensor.to<double, Rank>("x");
  for (std::size_t k = 0; k < values.elements().size(); ++k) {
    EXPECT_EQ(values.elements()[k], expected_value(dtype, k)) << "element " << k;
  }
}

const std::map<std::string, DType> kNumPyTypes = {
    {"f8", DType::Float64}, {"f4", DType::Float32}, {"f2", DType::Float16}, {"i8", DType::Int64},
    {"i4", DType::Int32},   {"i2", DType::Int16},   {"i1", DType::Int8},    {"u8", DType::UInt64},
    {"u4", DType::UInt32},  {"u2", DType::UInt16},  {"u1", DType::UInt8},   {"b1", DType::Bool}};

TEST(NumPyFile, FortranOrder) {
  expect_values<3>(read_tensors(path_of("numpy_f8_fortran.npy")).at("array"), DType::Float64,
                   {2, 3, 4});
}

TEST(NumPyFile, BigEndian) {
  expect_values<2>(read_tensors(path_of("numpy_f4_big_endian.npy")).at("array"), DType::Float32,
                   {3, 4});
}

TEST(NumPyFile, BigEndianInFortranOrder) {
  expect_values<2>(read_tensors(path_of("numpy_i2_big_endian_fortran.npy")).at("array"),
                   DType::Int16, {3, 2});
}

TEST(NumPyFile, ScalarBoolAndEmpty) {
  expect_values<0>(read_tensors(path_of("numpy_f2_scalar.npy")).at("array"), DType::Float16, {});
  expect_values<1>(read_tensors(path_of("numpy_b1.npy")).at("array"), DType::Bool, {5});
  expect_values<2>(read_tensors(path_of("numpy_i8_empty.npy")).at("array"), DType::Int64, {3, 0});
}

TEST(NumPyFile, Versions2And3) {
  expect_values<1>(read_tensors(path_of("numpy_u4_version_2.npy")).at("array"), DType::UInt32, {7});
  expect_values<2>(read_tensors(path_of("numpy_f4_version_3.npy")).at("array"), DType::Float32,
                   {2, 2});
}

TEST(NumPyFile, Archives) {
  for (const char* const name : {"numpy_stored.npz", "numpy_deflated.npz"}) {
    SCOPED_TRACE(name);
    const TensorFile file = read_tensors(path_of(name));
    EXPECT_EQ(file.tensors.size(), kNumPyTypes.size() + 3);
    for (const auto& [tensor, dtype] : kNumPyTypes) {
      SCOPED_TRACE(tensor);
      expect_values<2>(file.at(tensor), dtype, {2, 3});
    }
    expect_values<0>(file.at("scalar"), DType::Float32, {});
    expect_values<3>(file.at("empty"), DType::Float32, {2, 0, 3});
    expect_values<3>(file.at("group/fortran"), DType::Float64, {2, 3, 4});
  }
  EXPECT_TRUE(read_tensors(path_of("numpy_nothing.npz")).tensors.empty());
}

TEST(NumPyFile, WhatIsNoTensorIsRefused) {
  const auto refused = [](const std::string& name, const std::string& problem) {
    expect_file_error([&] { read_tensors(path_of(name)); }, 20, problem);
  };
  refused("numpy_object.npy", "descr: expected numbers or bool, got Python objects");
  refused("numpy_structured.npy", "descr: expected one dtype, got a structured one");
  refused("numpy_void.npy", "or <V2 for bfloat16, got \"|V2\"");
  refused("numpy_complex.npy", "got \"<c8\"");
}

TEST(MlDtypesFile, BFloat16) {
  expect_values<2>(read_tensors(path_of("ml_dtypes_bfloat16.npy")).at("array"), DType::BFloat16,
                   {2, 3});
}

TEST(SafetensorsFile, FromNumPy) {
  const TensorFile file = read_tensors(path_of("numpy.safetensors"));
  EXPECT_EQ(file.metadata, (std::map<std::string, std::string>{{"made by", "safetensors"}}));
  EXPECT_EQ(file.tensors.size(), kNumPyTypes.size());
  for (const auto& [name, dtype] : kNumPyTypes) {
    SCOPED_TRACE(name);
    expect_values<2>(file.at(name), dtype, {2, 3});
  }
}

TEST(SafetensorsFile, FromPyTorch) {
  const TensorFile file = read_tensors(path_of("torch.safetensors"));
  EXPECT_EQ(file.tensors.size(), 16U);
  for (const DType dtype : {DType::Float64, DType::Float32, DType::Float16, DType::BFloat16,
                            DType::Int64, DType::Int32, DType::Int16, DType::Int8, DType::UInt64,
                            DType::UInt32, DType::UInt16, DType::UInt8, DType::Bool}) {
    SCOPED_TRACE(name_of(dtype));
    expect_values<2>(file.at(std::string(name_of(dtype))), dtype, {2, 3});
  }
  expect_values<0>(file.at("scalar"), DType::Float32, {});
  expect_values<3>(file.at("empty"), DType::BFloat16, {2, 0, 3});
  expect_values<4>(file.at("rank4"), DType::Float32, {2, 1, 3, 2});
}

TEST(SafetensorsFile, WithADtypeThatIsNotStored) {
  expect_file_error(
      [] { read_tensors(path_of("torch_float8.safetensors")); }, 27,
      "tensor \"weight\": dtype: expected F64, F32, F16, BF16, I64 to I8, U64 to U8 or "
      "BOOL, got \"F8_E4M3\"");
}

TEST(PyTorchFile, PicklesAreRefused) {
  expect_file_error([] { read_tensors(path_of("torch_pickle.pt")); }, std::nullopt,
                    "expected a name of the form NAME.npy, got \"torch_pickle/data.pkl\"");
}

TEST(SafetensorsFile, RealActivations) {
  const TensorFile file =
      read_tensors(std::string(QKV_SOURCE_DIR) + "/data/minilm-layer0.safetensors");
  EXPECT_FALSE(file.metadata.empty());
  const auto weights = file.at("weights").to<double, 4>("weights");
  EXPECT_EQ(weights.shape(), (Extents<4>{4, 12, 25, 25}));
  double sum = 0;
  for (Index key = 0; key < 25; ++key) sum += weights(0, 0, 0, key);
  EXPECT_NEAR(sum, 1, 1e-6);
}

}  // namespace
}  // namespace qkv
