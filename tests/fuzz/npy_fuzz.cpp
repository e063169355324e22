// .npy and .npz: what read_tensors tells from safetensors by its first bytes.

#include "io/tensor_file.h"
#include "tests/fuzz/read_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto read = [](const qkv::FileBytes& file, const std::string& path) {
    return qkv::read_tensors(file, path);
  };
  qkv::testing::accepts(read, {bytes, nullptr});
  return 0;
}
