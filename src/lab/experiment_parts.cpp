#include "lab/experiment_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "bench/clock.h"
#include "qkv/reference.h"

namespace qkv::lab {
namespace {

template <class T>
double difference_of(std::span<const T> a, std::span<const T> b) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (a.size() != b.size()) return kInfinity;
  double worst = 0;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double gap = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!std::isfinite(gap)) return kInfinity;
    worst = std::max(worst, gap);
    largest = std::max(largest, std::fabs(static_cast<double>(b[i])));
  }
  return largest > 0 ? worst / largest : worst;
}

}  // namespace

void report(const ExperimentOptions& options, std::string_view what, double done) {
  if (options.progress && !options.progress(what, done)) throw Interrupted();
}

engine::Options engine_options(const ExperimentOptions& options) {
  engine::Options result;
  if (options.threads > 0) result.threads = options.threads;
  return result;
}

std::vector<std::uint64_t> seeds(const ExperimentOptions& options, int count) {
  std::vector<std::uint64_t> result(static_cast<std::size_t>(count));
  std::iota(result.begin(), result.end(), options.seed);
  return result;
}

Measured over_seeds(std::span<const double> values) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  if (values.size() == 1) return {sum, {}, {}};
  return {sum / static_cast<double>(values.size()), *low, *high};
}

Text same(std::string text) { return {text, std::move(text)}; }

std::string percent(double part) { return fmt::format("{:.3g} %", 100 * part); }

std::string duration(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.3g} µs", 1e6 * seconds);
  if (seconds < 1) return fmt::format("{:.3g} ms", 1e3 * seconds);
  return fmt::format("{:.3g} s", seconds);
}

std::string byte_count(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < kUnits.size(); ++unit) bytes /= 1024;
  return fmt::format("{:.3g} {}", bytes, kUnits[unit]);
}

double fastest_seconds(const std::function<void()>& work, const ExperimentOptions& options) {
  constexpr int kLeastRuns = 3;
  constexpr int kMostRuns = 1000;
  const double budget = options.quick ? 0.05 : 0.5;
  work();
  const double begin = bench::now();
  double best = std::numeric_limits<double>::infinity();
  double now = begin;
  for (int run = 0; run < kLeastRuns || (run < kMostRuns && now - begin < budget); ++run) {
    work();
    const double after = bench::now();
    best = std::min(best, after - now);
    now = after;
  }
  return best;
}

double relative_difference(std::span<const double> a, std::span<const double> b) {
  return difference_of(a, b);
}

double relative_difference(std::span<const float> a, std::span<const float> b) {
  return difference_of(a, b);
}

AttentionResults attend(const AttentionInputs<double>& inputs) {
  const auto [batch, heads, queries, key_width] = inputs.query.shape();
  AttentionResults results{
      Tensor<double, 4>({batch, heads, queries, inputs.value.shape(3)}),
      Tensor<double, 4>({batch, heads, queries, inputs.key.shape(2)}),
      Tensor<double, 3>({batch, heads, queries}),
  };
  reference::forward<double>(inputs, {.context = results.context.view(),
                                      .weights = results.weights.view(),
                                      .log_sum_exp = results.log_sum_exp.view()});
  return results;
}

HeatMapVariant heat_map_variant(Text name, const TensorView<const double, 4>& weights,
                                const Mask& mask) {
  HeatMapVariant variant = heat_map_variant(std::move(name), weights);
  const auto [batch, heads, queries, keys] = weights.shape();
  const BoundMask bound = mask.bind("lab", {batch, heads, queries, keys});
  variant.seen = Tensor<std::uint8_t, 5>({1, batch, heads, queries, keys});
  std::uint8_t* next = variant.seen.data();
  for (Index b = 0; b < batch; ++b) {
    for (Index h = 0; h < heads; ++h) {
      for (Index t = 0; t < queries; ++t) {
        for (Index s = 0; s < keys; ++s) *next++ = bound.visible(b, h, t, s) ? 1 : 0;
      }
    }
  }
  return variant;
}

}  // namespace qkv::lab
