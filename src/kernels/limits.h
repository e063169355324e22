// What the machine can do at most: kernels that measure the peak of fused multiply-adds and of reading memory.
#pragma once

#include <cstddef>
#include <string_view>

namespace qkv::kernels {

/// Kernels of the fastest SIMD target that this processor runs.
struct LimitKernels {
  std::string_view target;
  /// `rounds` passes of independent fused multiply-adds in registers; returns what the optimiser must not see.
  float (*multiply_add_float32)(std::ptrdiff_t rounds, float factor) noexcept = nullptr;
  double (*multiply_add_float64)(std::ptrdiff_t rounds, double factor) noexcept = nullptr;
  /// Operations of one round, a multiply-add counting two.
  std::ptrdiff_t float32_flops = 0;
  std::ptrdiff_t float64_flops = 0;
  /// The sum of `count` elements, a multiple of kReadStep.
  float (*read)(const float* data, std::ptrdiff_t count) noexcept = nullptr;
};

/// Any number of vectors that a pass of `read` takes divides it.
inline constexpr std::ptrdiff_t kReadStep = 1024;

const LimitKernels& limit_kernels();

}  // namespace qkv::kernels
