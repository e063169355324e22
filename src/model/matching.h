// How the queries of a head are held against its keys, and the way back.
#pragma once

#include "model/attention_change.h"
#include "qkv/tensor.h"

namespace qkv {

/// Dense rows.
template <class T>
struct HeadRows {
  T* data = nullptr;
  Index rows = 0;
  Index width = 0;

  T* row(Index i) const noexcept { return data + i * width; }
};

/// Squares of lengths are raised by this in cosine matching, so that no row is divided by zero.
inline constexpr double kCosineEpsilon = 1e-12;

/// One head of a sample.
template <class T>
struct MatchInputs {
  Matching matching = Matching::DotProduct;
  double scale = 1;
  HeadRows<const T> query;    ///< [T,Dk]
  HeadRows<const T> key;      ///< [S,Dk]
  const T* weight = nullptr;  ///< [Dk], of additive matching
};

/// scores [T,S].
template <class T>
void match(const MatchInputs<T>& inputs, T* scores);

/// Derivatives are added to.
template <class T>
struct MatchGradients {
  HeadRows<T> query;
  HeadRows<T> key;
  T* weight = nullptr;
};

template <class T>
void match_backward(const MatchInputs<T>& inputs, const T* score_gradients,
                    const MatchGradients<T>& gradients);

}  // namespace qkv
