// Asking for memory before it is read, where the processor does not foresee what comes next.
#pragma once

#include "qkv/tensor.h"

namespace qkv::engine {

/// Asks for `count` elements, into the second-level cache.
template <class E>
void prefetch(const E* from, Index count) noexcept {
  constexpr Index kLine = 64 / sizeof(E);
  for (Index i = 0; i < count; i += kLine) __builtin_prefetch(from + i, 0, 2);
}

}  // namespace qkv::engine
