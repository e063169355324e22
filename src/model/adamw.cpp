#include "model/adamw.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace qkv {
namespace {

/// Beside the norm in clipping, as PyTorch's clip_grad_norm_ has it.
constexpr double kClipEpsilon = 1e-6;

template <class T>
double norm_of(std::span<const NamedParameter<const T>> gradients) {
  double sum = 0;
  for (const auto& gradient : gradients) {
    for (const T element : gradient.elements) {
      sum += static_cast<double>(element) * static_cast<double>(element);
    }
  }
  return std::sqrt(sum);
}

}  // namespace

double learning_rate(const ScheduleOptions& options, Index step, Index steps) {
  if (step < options.warmup) {
    return options.peak * static_cast<double>(step + 1) / static_cast<double>(options.warmup);
  }
  const Index falling = std::max<Index>(steps - 1 - options.warmup, 1);
  const double done = static_cast<double>(step - options.warmup) / static_cast<double>(falling);
  const double cosine = 0.5 * (1 + std::cos(std::numbers::pi * std::min(done, 1.0)));
  return options.peak * (options.last_share + (1 - options.last_share) * cosine);
}

template <class T>
AdamW<T>::AdamW(const Decoder<T>& decoder, const AdamWOptions& options) : options_(options) {
  for (const auto& parameter : decoder.parameters()) {
    moments_.push_back({std::vector<T>(parameter.elements.size(), T{0}),
                        std::vector<T>(parameter.elements.size(), T{0})});
  }
}

// m = β₁m + (1−β₁)g,  v = β₂v + (1−β₂)g²,  p = p − η·λ·p − η·(m/(1−β₁ᵗ)) / (√(v/(1−β₂ᵗ)) + ε)
template <class T>
double AdamW<T>::step(Decoder<T>& decoder, const DecoderGradients<T>& gradients,
                      double learning_rate) {
  const auto list = gradients.list(decoder.options());
  const double norm = norm_of<T>(list);
  const double clip = options_.clip ? std::min(1.0, *options_.clip / (norm + kClipEpsilon)) : 1.0;
  ++steps_;
  const double first_correction = 1 - std::pow(options_.beta1, static_cast<double>(steps_));
  const double second_correction = 1 - std::pow(options_.beta2, static_cast<double>(steps_));
  const auto beta1 = static_cast<T>(options_.beta1);
  const auto beta2 = static_cast<T>(options_.beta2);
  const auto factor = static_cast<T>(clip);
  const auto rate = static_cast<T>(learning_rate / first_correction);
  const auto root_factor = static_cast<T>(1 / std::sqrt(second_correction));
  const auto epsilon = static_cast<T>(options_.epsilon);
  decoder.update([&](std::span<const NamedParameter<T>> parameters) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const bool decays = parameters[i].shape.size() > 1;
      const auto kept = static_cast<T>(1 - (decays ? learning_rate * options_.weight_decay : 0.0));
      T* p = parameters[i].elements.data();
      const T* g = list[i].elements.data();
      T* m = moments_[i].first.data();
      T* v = moments_[i].second.data();
      const auto count = static_cast<Index>(parameters[i].elements.size());
#pragma omp simd
      for (Index j = 0; j < count; ++j) {
        const T gradient = factor * g[j];
        m[j] = beta1 * m[j] + (T{1} - beta1) * gradient;
        v[j] = beta2 * v[j] + (T{1} - beta2) * gradient * gradient;
        p[j] = kept * p[j] - rate * m[j] / (std::sqrt(v[j]) * root_factor + epsilon);
      }
    }
  });
  return norm;
}

template class AdamW<double>;
template class AdamW<float>;

}  // namespace qkv
