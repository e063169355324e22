#include "kernels/limits.h"

#include "kernels/simd_targets.h"  // before Highway's own

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/limits.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace qkv::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Latency times throughput of the multiply-adds is 8 to 16; with 16 registers there is room for 12.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
inline constexpr std::ptrdiff_t kAccumulators = 24;
#else
inline constexpr std::ptrdiff_t kAccumulators = 12;
#endif

template <class T>
T multiply_add(std::ptrdiff_t rounds, T factor) noexcept {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<hn::ScalableTag<T>>;
  const V a = hn::Set(d, factor);
  V sums[kAccumulators];
  for (std::ptrdiff_t i = 0; i < kAccumulators; ++i) sums[i] = hn::Set(d, static_cast<T>(i));
  for (std::ptrdiff_t round = 0; round < rounds; ++round) {
    HWY_UNROLL(24)
    // NOLINTNEXTLINE(modernize-loop-convert): an index is what compilers unroll
    for (std::ptrdiff_t i = 0; i < kAccumulators; ++i) sums[i] = hn::MulAdd(sums[i], a, a);
  }
  V total = sums[0];
  for (std::ptrdiff_t i = 1; i < kAccumulators; ++i) total = hn::Add(total, sums[i]);
  return hn::GetLane(hn::SumOfLanes(d, total));
}

template <class T>
constexpr std::ptrdiff_t flops_of_round() {
  return 2 * kAccumulators * static_cast<std::ptrdiff_t>(hn::MaxLanes(hn::ScalableTag<T>()));
}

float read_memory(const float* HWY_RESTRICT data, std::ptrdiff_t count) noexcept {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<hn::ScalableTag<float>>;
  constexpr std::ptrdiff_t kVectors = 8;
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  V sums[kVectors];
  for (V& sum : sums) sum = hn::Zero(d);
  for (std::ptrdiff_t at = 0; at < count; at += kVectors * lanes) {
    HWY_UNROLL(8)
    for (std::ptrdiff_t i = 0; i < kVectors; ++i) {
      sums[i] = hn::Add(sums[i], hn::Load(d, data + at + i * lanes));
    }
  }
  V total = sums[0];
  for (std::ptrdiff_t i = 1; i < kVectors; ++i) total = hn::Add(total, sums[i]);
  return hn::GetLane(hn::SumOfLanes(d, total));
}

LimitKernels make_limit_kernels() {
  return {hwy::TargetName(HWY_TARGET), &multiply_add<float>,     &multiply_add<double>,
          flops_of_round<float>(),     flops_of_round<double>(), &read_memory};
}

}  // namespace qkv::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qkv::kernels {

HWY_EXPORT(make_limit_kernels);

const LimitKernels& limit_kernels() {
  static const LimitKernels kernels = HWY_DYNAMIC_DISPATCH(make_limit_kernels)();
  return kernels;
}

}  // namespace qkv::kernels
#endif  // HWY_ONCE
