// Dumps: a safetensors, .npz or .npy file of any tensors and metadata.

#include "tests/fuzz/read_dump.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  qkv::testing::accepts_dump({bytes, nullptr});
  return 0;
}
