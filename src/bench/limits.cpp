#include "bench/limits.h"

#include <omp.h>
#include <unistd.h>

#include <algorithm>

#include "bench/clock.h"
#include "kernels/limits.h"

namespace qkv::bench {
namespace {

constexpr std::ptrdiff_t kFlops = 400'000'000;  // of a thread and a probe: about 4 ms in float32

/// Eight times the last-level cache, within reason.
std::size_t buffer_bytes() noexcept {
  const long cache = ::sysconf(_SC_LEVEL3_CACHE_SIZE);  // 0 or −1 where it is not known
  const auto times_eight = cache > 0 ? 8 * static_cast<std::size_t>(cache) : 0;
  return std::clamp(times_eight, std::size_t{256} << 20U, std::size_t{1} << 30U) /
         engine::kHugePage * engine::kHugePage;
}

/// Seconds from when all threads are there until the last one is through. `work` is told the thread; what it returns is
/// used, so that the compiler may leave none of it out.
template <class Work>
double seconds_of_all(int threads, Work work) {
  double begin = 0;
  double total = 0;
#pragma omp parallel num_threads(threads) reduction(+ : total)
  {
#pragma omp barrier
#pragma omp master
    begin = now();
    total += work(omp_get_thread_num(), omp_get_num_threads());
  }
  const double seconds = now() - begin;
  [[maybe_unused]] static volatile double sink;
  sink = total;
  return seconds;
}

}  // namespace

std::size_t LimitProbe::read_bytes() noexcept { return buffer_bytes(); }

std::string_view LimitProbe::target() { return kernels::limit_kernels().target; }

double LimitProbe::measure(LimitKind kind, int threads) {
  const kernels::LimitKernels& kernel = kernels::limit_kernels();
  double done = 0;
  double seconds = 0;
  if (kind == LimitKind::Read) {
    const bool first = !memory_;
    if (first) memory_.emplace(buffer_bytes());
    auto* numbers = reinterpret_cast<float*>(memory_->data());
    const auto size = static_cast<std::ptrdiff_t>(memory_->bytes() / sizeof(float));
    if (first) std::fill_n(numbers, size, 1.0F);
    const std::ptrdiff_t steps = size / kernels::kReadStep;
    done = static_cast<double>(memory_->bytes());
    seconds = seconds_of_all(threads, [&](int thread, int count) {
      const std::ptrdiff_t begin = steps * thread / count;
      const std::ptrdiff_t end = steps * (thread + 1) / count;
      return static_cast<double>(
          kernel.read(numbers + begin * kernels::kReadStep, (end - begin) * kernels::kReadStep));
    });
  } else {
    const bool wide = kind == LimitKind::MultiplyAddFloat64;
    const std::ptrdiff_t flops = wide ? kernel.float64_flops : kernel.float32_flops;
    const std::ptrdiff_t rounds = std::max<std::ptrdiff_t>(1, kFlops / (wide ? 2 : 1) / flops);
    done = static_cast<double>(threads) * static_cast<double>(rounds * flops);
    seconds = seconds_of_all(threads, [&](int /*thread*/, int /*count*/) {
      constexpr double kFactor = 0.5;  // the sums tend to 1
      return wide ? kernel.multiply_add_float64(rounds, kFactor)
                  : static_cast<double>(
                        kernel.multiply_add_float32(rounds, static_cast<float>(kFactor)));
    });
  }
  return done / seconds;
}

std::string_view name_of(LimitKind kind) {
  switch (kind) {
    case LimitKind::MultiplyAddFloat32:
      return "multiply-add float32";
    case LimitKind::MultiplyAddFloat64:
      return "multiply-add float64";
    default:
      return "memory read";
  }
}

LimitKind multiply_add_limit(DType dtype) {
  return dtype == DType::Float64 ? LimitKind::MultiplyAddFloat64 : LimitKind::MultiplyAddFloat32;
}

}  // namespace qkv::bench
