// Philox4x32-10, a random number generator without state: the words are a function of a counter and a key (Salmon,
// Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", 2011).
#pragma once

#include <cstddef>
#include <cstdint>

namespace qkv::kernels {

/// Replaces N counters of four words each, side by side, by their random words.
template <std::size_t N>
[[gnu::always_inline]] inline void philox(std::uint32_t (&words)[4][N], std::uint32_t key0,
                                          std::uint32_t key1) {
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53;
  constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57;
  for (int round = 0; round < 10; ++round) {
    for (std::size_t i = 0; i < N; ++i) {
      const std::uint64_t product0 = kMultiplier0 * words[0][i];
      const std::uint64_t product1 = kMultiplier1 * words[2][i];
      words[0][i] = static_cast<std::uint32_t>(product1 >> 32) ^ words[1][i] ^ key0;
      words[2][i] = static_cast<std::uint32_t>(product0 >> 32) ^ words[3][i] ^ key1;
      words[1][i] = static_cast<std::uint32_t>(product1);
      words[3][i] = static_cast<std::uint32_t>(product0);
    }
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
}

}  // namespace qkv::kernels
