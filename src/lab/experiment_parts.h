// What experiments share: numbers drawn from a seed, spreads over seeds, words of tables, and being stopped.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/experiment.h"
#include "qkv/attention.h"
#include "qkv/engine.h"

namespace qkv::lab {

/// Tells options.progress; throws Interrupted where it wants no more.
void report(const ExperimentOptions& options, std::string_view what, double done);

/// The threads that the options ask for.
engine::Options engine_options(const ExperimentOptions& options);

/// options.seed and those after it.
std::vector<std::uint64_t> seeds(const ExperimentOptions& options, int count);

/// Independent normal numbers.
class NormalNumbers {
 public:
  explicit NormalNumbers(std::uint64_t seed) : generator_(seed) {}

  double next() { return distribution_(generator_); }

  template <class T, int Rank>
  Tensor<T, Rank> tensor(const Extents<Rank>& shape, double deviation = 1) {
    auto result = Tensor<T, Rank>::uninitialized(shape);
    for (T& element : result.elements()) element = static_cast<T>(deviation * next());
    return result;
  }

 private:
  std::mt19937_64 generator_;
  std::normal_distribution<double> distribution_;
};

/// The mean of what the seeds gave, with the smallest and the largest where there are several. `values` is not empty.
Measured over_seeds(std::span<const double> values);

/// The same in both languages: a symbol, a formula.
Text same(std::string text);

/// "12.3 %" of 0.123.
std::string percent(double part);
/// "1.50 ms".
std::string duration(double seconds);
/// "3.00 MiB".
std::string byte_count(double bytes);

/// Seconds of the fastest run of many: as many as fit into the time that the options leave for it, three at least. The first run, which
/// takes memory and starts threads, does not count.
double fastest_seconds(const std::function<void()>& work, const ExperimentOptions& options);

/// The largest |a − b| relative to the largest |b|; infinite where one of them is not a number.
double relative_difference(std::span<const double> a, std::span<const double> b);
double relative_difference(std::span<const float> a, std::span<const float> b);

/// What a forward call gives.
struct AttentionResults {
  Tensor<double, 4> context;      ///< [B,H,T,Dv]
  Tensor<double, 4> weights;      ///< [B,H,T,S]
  Tensor<double, 3> log_sum_exp;  ///< [B,H,T]
};

/// Of the oracle.
AttentionResults attend(const AttentionInputs<double>& inputs);

/// [B,H,T,S] as a variant of heat maps, of one layer.
template <class T>
HeatMapVariant heat_map_variant(Text name, const TensorView<T, 4>& weights) {
  const auto [batch, heads, queries, keys] = weights.shape();
  HeatMapVariant variant{std::move(name), Tensor<float, 5>({1, batch, heads, queries, keys}), {}};
  float* next = variant.values.data();
  detail::for_each_offset(weights.shape(), weights.strides(), [&](std::ptrdiff_t offset) {
    *next++ = static_cast<float>(weights.data()[offset]);
  });
  return variant;
}
/// What the mask lets through, of weights [B,H,T,S].
HeatMapVariant heat_map_variant(Text name, const TensorView<const double, 4>& weights,
                                const Mask& mask);

}  // namespace qkv::lab
