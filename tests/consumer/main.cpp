// Uses an installed qkv: a causal row whose scores are all equal is the mean of the values it sees.

#include <cmath>
#include <cstdio>

#include <qkv/reference.h>

int main() {
  constexpr qkv::Index tokens = 4;
  const qkv::Tensor<double, 4> zeros({1, 1, tokens, 2});
  qkv::Tensor<double, 4> value({1, 1, tokens, 1});
  for (qkv::Index t = 0; t < tokens; ++t) value(0, 0, t, 0) = static_cast<double>(t);

  qkv::Tensor<double, 4> context(value.shape());
  qkv::reference::forward<double>({.query = zeros.view(),
                                   .key = zeros.view(),
                                   .value = value.view(),
                                   .mask = qkv::Mask::causal()},
                                  {.context = context.view()});

  for (qkv::Index t = 0; t < tokens; ++t) {
    const double mean = 0.5 * static_cast<double>(t);
    if (!(std::abs(context(0, 0, t, 0) - mean) < 1e-15)) {
      std::printf("row %d: expected %g, got %g\n", static_cast<int>(t), mean, context(0, 0, t, 0));
      return 1;
    }
  }
  return 0;
}
