#include "model/matching.h"

#include <cmath>

namespace qkv {
namespace {

template <class T>
T dot(const T* a, const T* b, Index width) noexcept {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Index d = 0; d < width; ++d) sum += a[d] * b[d];
  return sum;
}

/// y += factor·x.
template <class T>
void add_scaled(T factor, const T* x, T* y, Index width) noexcept {
#pragma omp simd
  for (Index d = 0; d < width; ++d) y[d] += factor * x[d];
}

template <class T>
T inverse_length(const T* row, Index width) noexcept {
  return T{1} / std::sqrt(dot(row, row, width) + static_cast<T>(kCosineEpsilon));
}

template <class T>
T additive_score(const MatchInputs<T>& in, const T* q, const T* k) noexcept {
  T sum = 0;
  for (Index d = 0; d < in.query.width; ++d) sum += in.weight[d] * std::tanh(q[d] + k[d]);
  return sum;
}

// s = scale · Σ w·u with u = tanh(q + k):  dq = dk = ds·scale·w·(1 − u²),  dw = ds·scale·u
template <class T>
void additive_backward(const MatchInputs<T>& in, T scaled, Index t, Index s,
                       const MatchGradients<T>& out) noexcept {
  const T* q = in.query.row(t);
  const T* k = in.key.row(s);
  T* dq = out.query.row(t);
  T* dk = out.key.row(s);
  for (Index d = 0; d < in.query.width; ++d) {
    const T u = std::tanh(q[d] + k[d]);
    const T slope = scaled * in.weight[d] * (T{1} - u * u);
    dq[d] += slope;
    dk[d] += slope;
    out.weight[d] += scaled * u;
  }
}

// With a = 1/|q|, b = 1/|k| and c = a·b·q·k:  dq = ds·scale·(a·b·k − c·a²·q), dk alike.
template <class T>
void cosine_backward(const MatchInputs<T>& in, T scaled, Index t, Index s,
                     const MatchGradients<T>& out) noexcept {
  const Index width = in.query.width;
  const T* q = in.query.row(t);
  const T* k = in.key.row(s);
  const T a = inverse_length(q, width);
  const T b = inverse_length(k, width);
  const T cosine = a * b * dot(q, k, width);
  add_scaled(scaled * a * b, k, out.query.row(t), width);
  add_scaled(-scaled * cosine * a * a, q, out.query.row(t), width);
  add_scaled(scaled * a * b, q, out.key.row(s), width);
  add_scaled(-scaled * cosine * b * b, k, out.key.row(s), width);
}

}  // namespace

template <class T>
void match(const MatchInputs<T>& inputs, T* scores) {
  const auto scale = static_cast<T>(inputs.scale);
  const Index width = inputs.query.width;
  for (Index t = 0; t < inputs.query.rows; ++t) {
    const T* q = inputs.query.row(t);
    for (Index s = 0; s < inputs.key.rows; ++s, ++scores) {
      const T* k = inputs.key.row(s);
      switch (inputs.matching) {
        case Matching::DotProduct:
          *scores = scale * dot(q, k, width);
          break;
        case Matching::Cosine:
          *scores = scale * inverse_length(q, width) * inverse_length(k, width) * dot(q, k, width);
          break;
        case Matching::Additive:
          *scores = scale * additive_score(inputs, q, k);
          break;
      }
    }
  }
}

template <class T>
void match_backward(const MatchInputs<T>& inputs, const T* score_gradients,
                    const MatchGradients<T>& gradients) {
  const auto scale = static_cast<T>(inputs.scale);
  const Index width = inputs.query.width;
  for (Index t = 0; t < inputs.query.rows; ++t) {
    for (Index s = 0; s < inputs.key.rows; ++s) {
      const T scaled = scale * *score_gradients++;
      if (scaled == T{0}) continue;
      switch (inputs.matching) {
        case Matching::DotProduct:
          add_scaled(scaled, inputs.key.row(s), gradients.query.row(t), width);
          add_scaled(scaled, inputs.query.row(t), gradients.key.row(s), width);
          break;
        case Matching::Cosine:
          cosine_backward(inputs, scaled, t, s, gradients);
          break;
        case Matching::Additive:
          additive_backward(inputs, scaled, t, s, gradients);
          break;
      }
    }
  }
}

template void match(const MatchInputs<double>&, double*);
template void match(const MatchInputs<float>&, float*);
template void match_backward(const MatchInputs<double>&, const double*,
                             const MatchGradients<double>&);
template void match_backward(const MatchInputs<float>&, const float*, const MatchGradients<float>&);

}  // namespace qkv
