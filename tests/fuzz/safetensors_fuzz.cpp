#include "io/safetensors.h"
#include "tests/fuzz/read_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  qkv::testing::accepts(qkv::read_safetensors, {bytes, nullptr});
  return 0;
}
