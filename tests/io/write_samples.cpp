// write_samples DIRECTORY: writes one file of each format for interop_test.py to read with the libraries that
// define them. Element k, in row-major order, of every tensor is k - 3 where the type is signed, k where
// it is unsigned, (k - 3) / 2 where it is a float, and k % 3 == 0 where it is bool.

#include <iostream>
#include <string>

#include "qkv/io.h"

namespace {

using qkv::Index;
using qkv::TensorFile;

template <class T>
T value_at(Index k) {
  if constexpr (std::is_same_v<T, bool>) {
    return k % 3 == 0;
  } else if constexpr (std::is_unsigned_v<T>) {
    return static_cast<T>(k);
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(k - 3);
  } else {
    return static_cast<T>(static_cast<double>(k - 3) / 2);
  }
}

template <class T, int Rank>
qkv::StoredTensor sample(const qkv::Extents<Rank>& shape) {
  qkv::Tensor<T, Rank> tensor(shape);
  for (std::size_t k = 0; k < tensor.elements().size(); ++k) {
    tensor.elements()[k] = value_at<T>(static_cast<Index>(k));
  }
  return qkv::store(tensor.view());
}

template <class T>
void add_samples(TensorFile& file) {
  const std::string dtype(qkv::name_of(qkv::dtype_of<T>));
  file.tensors[dtype + "/scalar"] = sample<T, 0>({});
  file.tensors[dtype + "/vector"] = sample<T, 1>({5});
  file.tensors[dtype + "/empty"] = sample<T, 3>({2, 0, 3});
  file.tensors[dtype + "/rank 4"] = sample<T, 4>({2, 3, 1, 2});
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::cerr << "usage: write_samples DIRECTORY\n";
    return 2;
  }
  const std::string directory = arguments[1];
  TensorFile file;
  add_samples<double>(file);
  add_samples<float>(file);
  add_samples<qkv::Float16>(file);
  add_samples<std::int64_t>(file);
  add_samples<std::int32_t>(file);
  add_samples<std::int16_t>(file);
  add_samples<std::int8_t>(file);
  add_samples<std::uint64_t>(file);
  add_samples<std::uint32_t>(file);
  add_samples<std::uint16_t>(file);
  add_samples<std::uint8_t>(file);
  add_samples<bool>(file);
  qkv::write_tensors(directory + "/samples.npz", file);
  qkv::write_tensors(directory + "/sample.npy", {{{"array", file.at("float32/rank 4")}}, {}});
  add_samples<qkv::BFloat16>(file);
  file.metadata = {{"language", "中文"}, {"quoted", "\"\\\n"}};
  qkv::write_tensors(directory + "/samples.safetensors", file);
  return 0;
}
