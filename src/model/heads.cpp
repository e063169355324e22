#include "model/heads.h"

#include <numeric>
#include <utility>

#include "module/projection.h"

namespace qkv {
namespace {

Tensor<Index, 2> positions_of(Index first, Index tokens) {
  Tensor<Index, 2> positions({1, tokens});
  std::iota(positions.elements().begin(), positions.elements().end(), first);
  return positions;
}

}  // namespace

template <class T>
Tensor<T, 3> projected(const Tensor<T, 3>& input, const Tensor<T, 2>& weight,
                       const std::optional<Tensor<T, 1>>& bias) {
  auto output = Tensor<T, 3>::uninitialized({input.shape(0), input.shape(1), weight.shape(0)});
  project(input.view(), weight, bias, output);
  return output;
}

template <class T>
Tensor<T, 4> enter_scores(const Tensor<T, 3>& projection, Index heads,
                          const HeadPositions& positions) {
  Tensor<T, 4> split = contiguous_copy(split_heads(projection.view(), heads));
  if (positions.rotary) {
    apply_rotary<T>(split.view(), positions_of(positions.first, projection.shape(1)).view(),
                    *positions.rotary, split.view());
  }
  return split;
}

template <class T>
Tensor<T, 3> leave_scores(Tensor<T, 4> gradient, const HeadPositions& positions) {
  if (positions.rotary) {
    apply_rotary_backward<T>(gradient.view(),
                             positions_of(positions.first, gradient.shape(2)).view(),
                             *positions.rotary, gradient.view());
  }
  return merge_heads(std::as_const(gradient).view());
}

#define QKV_INSTANTIATE_HEADS(T)                                                        \
  template Tensor<T, 3> projected(const Tensor<T, 3>&, const Tensor<T, 2>&,             \
                                  const std::optional<Tensor<T, 1>>&);                  \
  template Tensor<T, 4> enter_scores(const Tensor<T, 3>&, Index, const HeadPositions&); \
  template Tensor<T, 3> leave_scores(Tensor<T, 4>, const HeadPositions&);

QKV_INSTANTIATE_HEADS(double)
QKV_INSTANTIATE_HEADS(float)

#undef QKV_INSTANTIATE_HEADS

}  // namespace qkv
